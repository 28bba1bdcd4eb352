-- Removes checkpoints, if nothing has changed since that was planned. Answers: N (no), or count, epoch before, epoch
-- after ('' if the thread is gone), blocks that went, updated_at, lost terms.
local thread, now, guard, guarded, new_epoch, ids = arg(), tonumber(arg()), arg(), arg(), arg(), arg()
local f = call('HMGET', H, 'e', 'x', 'g', 's', 'u')
if not f[1] or gone(f[2], now) or guarded ~= ((guard == 'g' and f[3] or f[4]) or '0') then return 'N' end
local count, lost = 0, {}
local total = call('ZCARD', V)
local doomed = {}
for id in string.gmatch(ids, '[^%z]+') do
  local version = call('ZSCORE', V, id)
  if version then doomed[#doomed + 1] = {id, version} end
end
if #doomed == total then
  local blocks = 0
  for _, name in ipairs(call('HKEYS', H)) do
    if string.match(name, '^b%d+$') then blocks = blocks + 1 end
  end
  return {text(total), f[1], '', text(blocks), '', table.concat(wipe(thread))}
end
for _, one in ipairs(doomed) do remove_checkpoint(one[1], one[2], lost) end
call('HINCRBY', H, 'g', 1)
call('HINCRBY', H, 's', 1)
if new_epoch ~= '' then call('HSET', H, 'e', new_epoch) end
local blocks = change_blocks()
if I then withdraw_terms(thread, lost) end
return {text(#doomed), f[1], new_epoch == '' and f[1] or new_epoch, text(blocks), f[5] or '', table.concat(lost)}
