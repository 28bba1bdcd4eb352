-- Some fields that hold blocks, in the order in which they are asked for, up to a number of bytes (at least one field): the
-- count of removals and the epoch, then payloads, '' for one that is not there.
local most, bytes = tonumber(arg()), 0
local f = call('HMGET', H, 's', 'e')
local answer = {f[1] or '0', f[2] or '0'}
local name = arg()
while name and bytes < most do
  local payload = call('HGET', H, name) or ''
  bytes = bytes + #payload
  answer[#answer + 1] = payload
  name = arg()
end
return answer
