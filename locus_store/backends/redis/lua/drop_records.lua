-- Removes the records of one scope, or of all; returns how many there were.
local thread, now, scope = arg(), tonumber(arg()), arg()
begin()
if not live(H, now) then return call('EXISTS', V, R) > 0 and call('EXISTS', H) == 0 and damage(R) or 0 end
local names = record_names(scope)
for _, name in ipairs(names) do
  call('HDEL', H, 'r' .. name)
  call('ZREM', R, name)
end
if call('EXISTS', R) == 0 then
  call('HDEL', H, 'q')
  if call('HEXISTS', H, 'u') == 0 then wipe(thread) end
end
return #names
