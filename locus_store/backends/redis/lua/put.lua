-- One save. Answers: S saved, C conflict, E exists, P no such parent, T stale, N a removal must be planned first,
-- D what has the id is damaged.
local thread, now, id, stamp, named = arg(), tonumber(arg()), arg(), arg(), arg()
local base_version, base_stamp, base_epoch, expected, if_exists = arg(), arg(), arg(), arg(), arg()
local low, high, ranges, payload, metadata_size, metadata = tonumber(arg()), tonumber(arg()), arg(), arg(), arg(), arg()
local size, expires, keep, new_epoch, terms = arg(), tonumber(arg()), tonumber(arg()), arg(), arg()
local has_block, block = arg() == '1', arg()
-- The planned removal: what must not have changed since, which checkpoints go, the epoch afterwards.
local guard, guarded, planned, lost_epoch = arg(), arg(), arg(), arg()
begin()

local f = call('HMGET', H, 'e', 'x', 'n', 'k', 'u', 'g', 's')
local epoch = f[1]
local expired = epoch and gone(f[2], now)
if not expired and torn(V, f[5]) then return damage(V) end
if expired then
  epoch = false
  f = {}
end
local old, was, head = false, nil, 0
if epoch then
  old = call('ZSCORE', V, id)
  if old then
    was = parse(call('HGET', H, 'c' .. old))
    if not was then return {'D'} end
    if was.stamp == stamp then return {'S', old, epoch, was.own, f[5], ''} end
  end
  head = tonumber(call('ZREVRANGE', V, 0, 0, 'WITHSCORES')[2] or 0)
end
local updated = f[5] or ''
if expected ~= '' and tonumber(expected) ~= head then return {'C', text(head), updated} end
if old and if_exists == 'error' then return {'E', '', updated} end
local parent = head
if named ~= '' then
  parent = tonumber((epoch and call('ZSCORE', V, named)) or 0)
  if parent == 0 then return {'P', '', updated} end
end
if base_version ~= '' then
  local base = epoch == base_epoch and parse(call('HGET', H, 'c' .. base_version))
  if not base or base.stamp ~= base_stamp then return {'T', '', updated} end
end

-- What goes: the checkpoint that is replaced, and those beyond `keep`.
local in_place = old and if_exists == 'in_place'
local doomed = {}
if keep and epoch then
  local excess = call('ZCARD', V) + (old and 0 or 1) - keep
  if excess > 0 then
    local ids = call('ZRANGE', V, 0, excess)
    for _, other in ipairs(ids) do
      if excess > 0 and other ~= id then doomed[#doomed + 1] = other end
      if other ~= id or in_place then excess = excess - 1 end
    end
  end
end
if old or #doomed > 0 then
  local same = guard == 'g' and guarded == (f[6] or '0') or guard == 's' and guarded == (f[7] or '0')
  local ids = table.concat(doomed, '\0')
  if not same or planned ~= ids then return {'N', ids, updated, f[6], f[7], old or ''} end
end

if expired then wipe(thread) end
local version = in_place and tonumber(old) or (tonumber(f[3]) or 0) + 1
local count, own = tonumber(f[4]) or 0, 0
if has_block then
  count = count + 1
  own = count
end
local moment = math.max(now, (tonumber(f[5]) or 0) + 1)
local created = moment
if in_place then
  parent, created = was.parent, was.created
else
  if old and parent == tonumber(old) then parent = was.parent end
  created = text(moment)
end
local record = table.concat({
  '1 ', parent, ' ', text(own), ' ', text(low or own), ' ', text(math.max(high or 0, own)), ' ', created, ' ', size, ' ',
  #ranges, ' ', metadata_size, ' ', #terms / 16, ' ', stamp, '\n', ranges, metadata, terms, payload,
})
if lost_epoch ~= '' then new_epoch = lost_epoch elseif epoch then new_epoch = epoch end
-- The first command that writes is one that a server without memory refuses, and so all or nothing is done.
call('HSET', H, 'e', new_epoch, 'n', text(math.max(version, tonumber(f[3]) or 0)), 'k', text(count),
  'u', text(moment), 'g', text((tonumber(f[6]) or 0) + 1), 'c' .. text(version), record)
if has_block then call('HSET', H, 'b' .. text(own), text(own) .. ' ' .. block) end
if expires then call('HSET', H, 'x', text(expires)) elseif f[2] then call('HDEL', H, 'x') end
call('ZADD', V, text(version), id)
local fresh, lost = add_terms(terms), {}
if old then
  if not in_place then call('HDEL', H, 'c' .. old) end
  remove_terms(was.terms, lost)
end
for _, other in ipairs(doomed) do remove_checkpoint(other, call('ZSCORE', V, other), lost) end
if old or #doomed > 0 then
  call('HINCRBY', H, 's', 1)
  change_blocks()
end
set_end(expires, f[2], now)
if I then
  open_index()
  call('ZADD', I, text(-moment), thread)
  announce_terms(thread, fresh)
  withdraw_terms(thread, lost)
end
return {'S', text(version), new_epoch, text(own), text(moment), table.concat(lost)}
