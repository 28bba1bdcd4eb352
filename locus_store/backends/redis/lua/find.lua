-- Checkpoints that have all of some terms, in several threads (H and V of each are the KEYS). For each thread: -1 if
-- nothing is left of it, or else how many were found, updated_at, and id, version, parent, record of each.
local now, newest_only, limit, wanted = tonumber(arg()), arg() == '1', tonumber(arg()), arg()

local function has_all(terms)
  local there = {}
  each_term(terms, function(term) there[term] = true end)
  local all = true
  each_term(wanted, function(term) all = all and there[term] end)
  return all
end

local answer, total = {}, 0
for k = 1, #KEYS, 2 do
  if limit >= 0 and total >= limit then break end
  local h, v = KEYS[k], KEYS[k + 1]
  local updated = call('HGET', h, 'u')
  local place = #answer + 1
  if not updated then
    if torn(v, updated) then return damage(v) end
    answer[place] = -1
  else
    local count = 0
    answer[place], answer[place + 1] = 0, updated
    local may = live(h, now)
    each_term(wanted, function(term) may = may and call('HEXISTS', h, 't' .. term) == 1 end)
    if may and torn(v, updated) then return damage(v) end
    local from = 0
    while may do
      local listed = call('ZREVRANGE', v, from, newest_only and 0 or from + 199, 'WITHSCORES')
      for i = 1, #listed, 2 do
        local found = parse(call('HGET', h, 'c' .. listed[i + 1]))
        if found and has_all(found.terms) and (limit < 0 or total < limit) then
          local parent = found.parent ~= '0' and call('ZRANGEBYSCORE', v, found.parent, found.parent)[1]
          local n = #answer
          answer[n + 1], answer[n + 2], answer[n + 3] = listed[i], listed[i + 1], parent or ''
          answer[n + 4] = found.listed
          count, total = count + 1, total + 1
        end
      end
      from = from + 200
      may = not newest_only and #listed == 400 and (limit < 0 or total < limit)
    end
    answer[place] = count
  end
end
return answer
