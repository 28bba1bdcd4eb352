-- For each of several threads (KEYS are H and V of each): 'x' if it has expired, or the ids of checkpoints created
-- before a time, without the newest few, with a NUL after each.
local now, older_than, keep_last = tonumber(arg()), tonumber(arg()), tonumber(arg())
local answer = {}
for k = 1, #KEYS, 2 do
  local h, v = KEYS[k], KEYS[k + 1]
  local found = ''
  if gone(call('HGET', h, 'x'), now) then
    found = 'x'
  else
    local ids = {}
    local last = call('ZCARD', v) - keep_last - 1
    local listed = last >= 0 and call('ZRANGE', v, 0, last, 'WITHSCORES') or {}
    for i = 1, #listed, 2 do
      local one = parse(call('HGET', h, 'c' .. listed[i + 1]))
      -- Within a thread times follow versions.
      if one and tonumber(one.created) >= older_than then break end
      if one then ids[#ids + 1] = listed[i] .. '\0' end
    end
    found = table.concat(ids)
  end
  answer[#answer + 1] = found
end
return answer
