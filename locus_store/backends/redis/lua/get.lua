-- One checkpoint with its blocks, joined as they lie in order: their payloads may be.
local now, id = tonumber(arg()), arg()
local epoch = live(H, now)
if not epoch then return false end
local version
if id == '' then
  local newest = call('ZREVRANGE', V, 0, 0, 'WITHSCORES')
  id, version = newest[1], newest[2]
else
  version = call('ZSCORE', V, id)
end
if not version then return false end
local record = call('HGET', H, 'c' .. version)
local found = parse(record)
local answer = {id, version, epoch, record or ''}
if not found or found.last == 0 then return answer end
local pieces, bytes = {}, 0
for start = found.first, found.last, 1000 do
  local names = {}
  for number = start, math.min(start + 999, found.last) do names[#names + 1] = 'b' .. text(number) end
  local blocks = call('HMGET', H, unpack(names))
  for i = 1, #names do
    if blocks[i] then
      pieces[#pieces + 1] = blocks[i]
      bytes = bytes + #blocks[i]
      if bytes > 16777216 then
        answer[#answer + 1] = table.concat(pieces)
        pieces, bytes = {}, 0
      end
    end
  end
end
if #pieces > 0 then answer[#answer + 1] = table.concat(pieces) end
return answer
