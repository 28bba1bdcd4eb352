-- Checkpoints of a thread, newest first, without payloads: updated_at, then id, version, parent, record of each.
local now, id, before, limit = tonumber(arg()), arg(), arg(), arg()
local f = call('HMGET', H, 'e', 'x', 'u')
if gone(f[2], now) then return {} end
if torn(V, f[3]) then return damage(V) end
if not f[1] then return {} end
local listed
if id ~= '' then
  local version = call('ZSCORE', V, id)
  listed = version and {id, version} or {}
else
  local from = before == '' and '+inf' or '(' .. before
  listed = call('ZREVRANGEBYSCORE', V, from, '-inf', 'WITHSCORES', 'LIMIT', 0, limit)
end
local answer = {f[3] or '0'}
for i = 1, #listed, 2 do
  local record = call('HGET', H, 'c' .. listed[i + 1])
  local found = parse(record)
  local parent = found and found.parent ~= '0' and call('ZRANGEBYSCORE', V, found.parent, found.parent)[1]
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = listed[i], listed[i + 1], parent or ''
  answer[n + 4] = found and found.listed or ''
end
return answer
