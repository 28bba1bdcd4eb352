-- What all scripts share. Numbers above 2^53 (epochs) stay text; payloads are never parsed.
--
-- KEYS of a script about one thread: H, V, R, and on a single server the tenant's I, M, N after them.
--   H  hash: e epoch, n version, k block count, u updated_at, x expires_at, q record count,
--            g count of changes, s count of removals, c<version> checkpoint, b<number> block,
--            j<number> the fifty blocks up to that number, if they were joined; s then counts one more,
--            t<term> how many checkpoints have the term, r<scope NUL key> record
--   V  sorted set: checkpoint ids by version
--   R  sorted set: the names of the records, all with score 0
--   I  sorted set: thread ids by -updated_at, and '' if it is complete
--   M  sorted set: <term><thread id>, all with score 0, and '' if it is complete
--   N  says that the tenant has threads: 1, or 2 if some have had terms; or 0 for the next hour: it had none. Without it
--      nothing is known, and what there is of I and M is not all, unless it says so

local call = redis.call
local H, V, R, I, M, N = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

-- How much longer the server keeps what has expired: reads look at the time that the caller gives.
local GRACE = 60000

-- Scripts are not undone, so what is to be written is looked at first: a key of somebody else's fails here.
local function begin()
  for i = 2, math.min(#KEYS, 5) do call('ZCARD', KEYS[i]) end
  if N then call('GET', N) end
end

local at = 0
local function arg()
  at = at + 1
  return ARGV[at]
end

local function text(number)
  return string.format('%.0f', number)
end

-- ---------------------------------------------------------------------------------------------------- one checkpoint

local HEAD = '^1 (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%-?%d+) (%d+) (%x+)\n()'

local function parse(record)
  if not record then return nil end
  local parent, own, first, last, created, size, ranges, metadata, terms, stamp, start = string.match(record, HEAD)
  if not parent then return nil end
  local stop = start + ranges + math.max(tonumber(metadata), 0)
  return {
    parent = parent, own = own, first = tonumber(first), last = tonumber(last), created = created, stamp = stamp,
    listed = string.sub(record, 1, stop - 1), terms = string.sub(record, stop, stop + terms * 16 - 1),
  }
end

local function each_term(terms, visit)
  for start = 1, #terms, 16 do visit(string.sub(terms, start, start + 15)) end
end

-- ------------------------------------------------------------------------------------------------------- one thread

local function gone(expires, now)
  return expires and tonumber(expires) <= now
end

-- The thread's epoch, or false if it is not there.
local function live(h, now)
  local found = call('HMGET', h, 'e', 'x')
  return found[1] and not gone(found[2], now) and found[1]
end

-- A server that evicts throws out single keys. H with 'u' and V are there together, or one of them was thrown out.
local function torn(v, updated)
  return (call('EXISTS', v) == 1) ~= (updated ~= false)
end

-- What a script answers then; the key names the thread.
local function damage(key)
  return redis.error_reply('TORN ' .. key)
end

-- The names of all records, or of those of one scope. R only orders them: if it was thrown out, H still has them.
local function record_names(scope)
  if call('EXISTS', R) == 1 then
    if scope == '' then return call('ZRANGE', R, 0, -1) end
    return call('ZRANGEBYLEX', R, '[' .. scope .. '\0', '(' .. scope .. '\1')
  end
  local names = {}
  if (tonumber(call('HGET', H, 'q')) or 0) == 0 then return names end
  local wanted = scope == '' and 'r' or 'r' .. scope .. '\0'
  for _, name in ipairs(call('HKEYS', H)) do
    if string.sub(name, 1, #wanted) == wanted then names[#names + 1] = string.sub(name, 2) end
  end
  table.sort(names)
  return names
end

local function all_terms(h)
  local found = {}
  for _, name in ipairs(call('HKEYS', h)) do
    if #name == 17 and string.sub(name, 1, 1) == 't' then found[#found + 1] = string.sub(name, 2) end
  end
  return found
end

local function set_end(expires, had_one, now)
  if expires then
    local time = call('TIME')
    local left = math.max(0, math.ceil((expires - now) / 1000))
    local moment = text(time[1] * 1000 + math.floor(time[2] / 1000) + left + GRACE)
    for _, key in ipairs({H, V, R}) do call('PEXPIREAT', key, moment) end
  elseif had_one then
    for _, key in ipairs({H, V, R}) do call('PERSIST', key) end
  end
end

-- Counts a checkpoint's terms; returns those that the thread did not have before.
local function add_terms(terms)
  local fresh = {}
  each_term(terms, function(term)
    if call('HINCRBY', H, 't' .. term, 1) == 1 then fresh[#fresh + 1] = term end
  end)
  return fresh
end

-- Appends to `lost` the terms that the thread has no more.
local function remove_terms(terms, lost)
  each_term(terms, function(term)
    if call('HINCRBY', H, 't' .. term, -1) <= 0 then
      call('HDEL', H, 't' .. term)
      lost[#lost + 1] = term
    end
  end)
end

local function remove_checkpoint(id, version, lost)
  local found = parse(call('HGET', H, 'c' .. version))
  call('ZREM', V, id)
  call('HDEL', H, 'c' .. version)
  if found then remove_terms(found.terms, lost) end
end

-- Reads pairs of a block's field and its payload from ARGV up to its end; an empty payload removes the field.
local function change_blocks()
  local removed = 0
  local name = arg()
  while name do
    local payload = arg()
    if payload == '' then
      removed = removed + call('HDEL', H, name)
    else
      call('HSET', H, name, payload)
    end
    name = arg()
  end
  return removed
end

-- ------------------------------------------------------------------------------------------------ the tenant's index

local function open_index()
  if call('EXISTS', I) == 0 and call('GET', N) == '0' then
    call('ZADD', I, '+inf', '')
    call('SET', N, '1')
  end
end

local function announce_terms(thread, terms)
  if #terms == 0 then return end
  if call('EXISTS', M) == 0 and call('GET', N) == '1' then
    call('ZADD', M, 0, '')
    call('SET', N, '2')
  end
  for _, term in ipairs(terms) do call('ZADD', M, 0, term .. thread) end
end

local function withdraw_terms(thread, terms)
  for _, term in ipairs(terms) do call('ZREM', M, term .. thread) end
end

local function unlist(thread)
  call('ZREM', I, thread)
  if call('ZCARD', I) == 1 and call('ZSCORE', I, '') then call('DEL', I, M, N) end
end

-- Removes all that there is of a thread; returns its terms.
local function wipe(thread)
  local terms = all_terms(H)
  local listed = call('HEXISTS', H, 'u') == 1 or call('EXISTS', H) == 0
  call('UNLINK', H, V, R)
  if I and listed then
    withdraw_terms(thread, terms)
    unlist(thread)
  end
  return terms
end
