-- Name and value of the records of one scope, or of all.
local now, scope = tonumber(arg()), arg()
if not live(H, now) then return {} end
local names
if scope == '' then
  names = call('ZRANGE', R, 0, -1)
else
  names = call('ZRANGEBYLEX', R, '[' .. scope .. '\0', '(' .. scope .. '\1')
end
local answer = {}
for i, name in ipairs(names) do
  answer[2 * i - 1], answer[2 * i] = name, call('HGET', H, 'r' .. name)
end
return answer
