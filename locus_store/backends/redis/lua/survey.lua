-- What a removal must know: epoch, changes, removals, block count, updated_at, then id, version, record of checkpoints.
-- Those above a version; or, with ids, these and the nearest one that is not among them on either side of each.
local now, above, ids = tonumber(arg()), arg(), arg()
local f = call('HMGET', H, 'e', 'x', 'g', 's', 'k', 'u')
if torn(V, f[6]) then return damage(V) end
if not f[1] then return {} end
local answer = {f[1], f[3] or '0', f[4] or '0', f[5] or '0', f[6] or '', gone(f[2], now) and 'expired' or ''}
local seen = {}
local function add(id, version)
  if id and not seen[id] then
    seen[id] = true
    local found = parse(call('HGET', H, 'c' .. version))
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3] = id, version, found and found.listed or ''
  end
end
if ids == '' then
  local listed = call('ZRANGEBYSCORE', V, '(' .. above, '+inf', 'WITHSCORES')
  for i = 1, #listed, 2 do add(listed[i], listed[i + 1]) end
  return answer
end
local named = {}
for id in string.gmatch(ids, '[^%z]+') do named[#named + 1] = id; named[id] = true end
for _, id in ipairs(named) do
  local version = call('ZSCORE', V, id)
  if version then
    add(id, version)
    for _, how in ipairs({'ZRANGEBYSCORE', 'ZREVRANGEBYSCORE'}) do
      local stop = how == 'ZRANGEBYSCORE' and '+inf' or '-inf'
      local near = call(how, V, '(' .. version, stop, 'WITHSCORES', 'LIMIT', 0, 32)
      for i = 1, #near, 2 do
        if not named[near[i]] then
          add(near[i], near[i + 1])
          break
        end
      end
    end
  end
end
return answer
