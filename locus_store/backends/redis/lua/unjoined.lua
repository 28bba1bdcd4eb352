-- The fifty blocks up to a number, if all of them are small and so are they together: the count of removals, the epoch,
-- then the payloads of those that are there. Nothing if they are not worth being joined, or are already.
local number, fewest, small, together = tonumber(arg()), tonumber(arg()), tonumber(arg()), tonumber(arg())
if call('HEXISTS', H, 'j' .. text(number)) == 1 then return {} end
local bytes, names = 0, {}
for one = number - 49, number do
  local size = call('HSTRLEN', H, 'b' .. text(one))
  if size > small then return {} end
  if size > 0 then names[#names + 1] = 'b' .. text(one) end
  bytes = bytes + size
end
if #names < fewest or bytes > together then return {} end
local f = call('HMGET', H, 's', 'e')
return {f[1] or '0', f[2] or '0', unpack(call('HMGET', H, unpack(names)))}
