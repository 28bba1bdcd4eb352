-- Puts a copy in its place: H, V and R of the copy are KEYS 7 to 9 (4 to 6 on a cluster). ARGV: thread, now, overwrite,
-- expires_at, then id and version of each checkpoint, its term digests. Answers: M if the copy is gone, E if the
-- destination exists, or S, updated_at, the terms of what was replaced.
local thread, now, overwrite, expires = arg(), tonumber(arg()), arg() == '1', tonumber(arg())
local first = #KEYS - 2
local h, r = KEYS[first], KEYS[first + 2]
if first == 4 then I, M, N = nil, nil, nil else begin() end
if call('EXISTS', h) == 0 then return {'M'} end
local there = live(H, now) and call('ZCARD', V) > 0
if there and not overwrite then
  call('UNLINK', h, r)
  return {'E', call('HGET', H, 'u')}
end
local before = there and tonumber(call('HGET', H, 'u')) or 0
local moment = math.max(now, before + 1)
call('HSET', h, 'u', text(moment))
local lost = wipe(thread)
call('RENAME', h, H)
if call('EXISTS', r) == 1 then call('RENAME', r, R) end
local fresh = {}
local id = arg()
while id do
  local version, terms = arg(), arg()
  call('ZADD', V, version, id)
  for _, term in ipairs(add_terms(terms)) do fresh[#fresh + 1] = term end
  id = arg()
end
set_end(expires, true, now)
if I then
  open_index()
  call('ZADD', I, text(-moment), thread)
  announce_terms(thread, fresh)
end
return {'S', text(moment), table.concat(lost), table.concat(fresh)}
