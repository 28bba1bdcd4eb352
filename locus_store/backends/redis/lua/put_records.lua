-- Records: names and payloads.
local thread, now, expires, keep, new_epoch = arg(), tonumber(arg()), tonumber(arg()), arg() == '1', arg()
begin()
local f = call('HMGET', H, 'e', 'x', 'q')
if not f[1] and call('EXISTS', V, R) > 0 then return damage(R) end
if f[1] and gone(f[2], now) then
  wipe(thread)
  f = {}
end
if call('EXISTS', R) == 0 then
  for _, known in ipairs(record_names('')) do call('ZADD', R, 0, known) end
end
local name, count = arg(), tonumber(f[3]) or 0
if not f[1] then
  if not name then return 0 end
  call('HSET', H, 'e', new_epoch)
end
while name do
  local payload = arg()
  local there = call('HGET', H, 'r' .. name)
  if not there then
    count = count + 1
    call('HSET', H, 'r' .. name, text(count) .. ' ' .. payload)
    call('ZADD', R, 0, name)
  elseif not keep then
    call('HSET', H, 'r' .. name, string.match(there, '^%d+ ') .. payload)
  end
  name = arg()
end
call('HSET', H, 'q', text(count))
if expires then call('HSET', H, 'x', text(expires)) else call('HDEL', H, 'x') end
set_end(expires, f[2], now)
return 1
