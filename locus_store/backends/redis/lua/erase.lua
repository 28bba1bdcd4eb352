-- Removes a whole thread. Answers: checkpoints, blocks, epoch, terms; epoch '' if it was not there, or had expired.
local thread, now, only_expired = arg(), tonumber(arg()), arg() == '1'
local f = call('HMGET', H, 'e', 'x')
local expired = gone(f[2], now)
if not f[1] or (only_expired and not expired) then return {'0', '0', '', ''} end
local count, blocks = call('ZCARD', V), 0
for _, name in ipairs(call('HKEYS', H)) do
  if string.match(name, '^b%d+$') then blocks = blocks + 1 end
end
local there = count > 0 and not expired
return {text(count), text(blocks), there and f[1] or '', table.concat(wipe(thread))}
