-- One checkpoint, and after it its blocks: joining them here would take Lua longer than all the rest. With a time the
-- thread, if it expires, expires then and no sooner.
local now, id, renewed = tonumber(arg()), arg(), tonumber(arg())
local f = call('HMGET', H, 'e', 'x', 'u')
local epoch, expires = f[1], tonumber(f[2])
if gone(expires, now) then return false end
if torn(V, f[3]) then return damage(V) end
if not epoch then return false end
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
local names = {}
local function take()
  local blocks = #names > 0 and call('HMGET', H, unpack(names)) or {}
  for i = 1, #names do
    if blocks[i] then answer[#answer + 1] = blocks[i] end
  end
  names = {}
end
for start = math.ceil(found.first / 50) * 50, found.last + 49, 5000 do
  local ends = {}
  for stop = start, math.min(start + 4950, found.last + 49), 50 do ends[#ends + 1] = 'j' .. text(stop) end
  local joined = call('HMGET', H, unpack(ends))
  for i = 1, #ends do
    local stop = start + 50 * (i - 1)
    if joined[i] then
      take()
      answer[#answer + 1] = joined[i]
    else
      for number = math.max(found.first, stop - 49), math.min(stop, found.last) do
        names[#names + 1] = 'b' .. text(number)
      end
      if #names > 950 then take() end
    end
  end
end
take()
return answer
