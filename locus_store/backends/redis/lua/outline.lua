-- What the index must say of each of several threads (the KEYS are their H): updated_at or '', and its terms.
local answer = {}
for i, h in ipairs(KEYS) do
  local updated = call('HGET', h, 'u')
  answer[2 * i - 1] = updated or ''
  answer[2 * i] = updated and table.concat(all_terms(h)) or ''
end
return answer
