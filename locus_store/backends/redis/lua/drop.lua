-- Removes a thread (no ids), whatever there is of it or only if it has expired; or some of its checkpoints, if nothing
-- has changed since that was planned. Answers: N (no), or checkpoints that went, blocks that went whole, epoch before
-- ('' if there was no live thread), epoch after ('' if it is gone), updated_at, lost terms.
local thread, now, ids, only_expired = arg(), tonumber(arg()), arg(), arg() == '1'
local guard, guarded, new_epoch = arg(), arg(), arg()
begin()
local f = call('HMGET', H, 'e', 'x', 'g', 's', 'u')
local expired = f[1] and gone(f[2], now)
local total = call('ZCARD', V)

local function all()
  local checkpoints, blocks = 0, 0
  for _, name in ipairs(call('HKEYS', H)) do
    if string.match(name, '^c%d+$') then checkpoints = checkpoints + 1 end
    if string.match(name, '^[bj]%d+$') then blocks = blocks + 1 end
  end
  total = math.max(total, checkpoints)
  local there = total > 0 and not expired
  return {text(total), text(blocks), there and (f[1] or '0') or '', '', '', table.concat(wipe(thread))}
end

if ids == '' then
  local left = f[1] or call('EXISTS', V, R) > 0
  if not left or (only_expired and not expired) then return {'0', '0', '', '', '', ''} end
  return all()
end
if not expired and torn(V, f[5]) then return damage(V) end
if not f[1] or expired or guarded ~= ((guard == 'g' and f[3] or f[4]) or '0') then return 'N' end
local doomed, lost = {}, {}
for id in string.gmatch(ids, '[^%z]+') do
  local version = call('ZSCORE', V, id)
  if version then doomed[#doomed + 1] = {id, version} end
end
if #doomed == total then return all() end
-- The first command that writes is one that a server without memory refuses, and so all or nothing is done.
call('HINCRBY', H, 'g', 1)
call('HINCRBY', H, 's', 1)
for _, one in ipairs(doomed) do remove_checkpoint(one[1], one[2], lost) end
if new_epoch ~= '' then call('HSET', H, 'e', new_epoch) end
local blocks = change_blocks()
if I then withdraw_terms(thread, lost) end
return {text(#doomed), text(blocks), f[1], new_epoch == '' and f[1] or new_epoch, f[5] or '', table.concat(lost)}
