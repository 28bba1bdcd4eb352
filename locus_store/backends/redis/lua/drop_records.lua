-- Removes the records of one scope, or of all; returns how many there were.
local thread, now, scope = arg(), tonumber(arg()), arg()
begin()
if not live(H, now) then return 0 end
local names
if scope == '' then
  names = call('ZRANGE', R, 0, -1)
else
  names = call('ZRANGEBYLEX', R, '[' .. scope .. '\0', '(' .. scope .. '\1')
end
for _, name in ipairs(names) do
  call('HDEL', H, 'r' .. name)
  call('ZREM', R, name)
end
if call('EXISTS', R) == 0 and call('EXISTS', V) == 0 then wipe(thread) end
return #names
