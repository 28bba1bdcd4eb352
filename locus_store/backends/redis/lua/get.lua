-- One checkpoint, and after it its blocks: joining them here would take Lua longer than all the rest. With a time the
-- thread, if it expires, expires then and no sooner.
local now, id, renewed = tonumber(arg()), arg(), tonumber(arg())
local f = call('HMGET', H, 'e', 'x')
local epoch, expires = f[1], tonumber(f[2])
if not epoch or gone(expires, now) then return false end
local version
if id == '' then
  local newest = call('ZREVRANGE', V, 0, 0, 'WITHSCORES')
  id, version = newest[1], newest[2]
else
  version = call('ZSCORE', V, id)
end
if not version then return false end
if renewed and expires and expires < renewed then
  call('HSET', H, 'x', text(renewed))
  set_end(renewed, true, now)
end
local record = call('HGET', H, 'c' .. version)
local found = parse(record)
local answer = {id, version, epoch, record or ''}
if not found or found.last == 0 then return answer end
for start = found.first, found.last, 1000 do
  local names = {}
  for number = start, math.min(start + 999, found.last) do names[#names + 1] = 'b' .. text(number) end
  local blocks = call('HMGET', H, unpack(names))
  for i = 1, #names do
    if blocks[i] then answer[#answer + 1] = blocks[i] end
  end
end
return answer
