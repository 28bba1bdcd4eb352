-- Name and value of the records of one scope, or of all.
local now, scope = tonumber(arg()), arg()
if not live(H, now) then return call('EXISTS', V, R) > 0 and call('EXISTS', H) == 0 and damage(R) or {} end
local names = record_names(scope)
local answer = {}
for i, name in ipairs(names) do
  answer[2 * i - 1], answer[2 * i] = name, call('HGET', H, 'r' .. name)
end
return answer
