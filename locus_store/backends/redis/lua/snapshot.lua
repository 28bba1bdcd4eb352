-- All of a thread but its blocks, to be copied: epoch, changes, removals, expires_at, record count, how many
-- checkpoints; id, version, record of each; then name and value of each of its records.
local now, upto = tonumber(arg()), arg()
local f = call('HMGET', H, 'e', 'x', 'g', 's', 'q', 'u')
if gone(f[2], now) then return {} end
if torn(V, f[6]) then return damage(V) end
if not f[1] then return {} end
local listed = call('ZRANGEBYSCORE', V, '-inf', upto == '' and '+inf' or upto, 'WITHSCORES')
local answer = {f[1], f[3] or '0', f[4] or '0', f[2] or '', f[5] or '0', text(#listed / 2)}
for i = 1, #listed, 2 do
  local n = #answer
  answer[n + 1], answer[n + 2] = listed[i], listed[i + 1]
  answer[n + 3] = call('HGET', H, 'c' .. listed[i + 1]) or ''
end
for _, name in ipairs(record_names('')) do
  local n = #answer
  answer[n + 1], answer[n + 2] = name, call('HGET', H, 'r' .. name)
end
return answer
