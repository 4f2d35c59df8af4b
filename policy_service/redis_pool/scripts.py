"""Lua scripts that Redis runs atomically, and what they answer.

Every script looks before it writes, for one that fails half way is not rolled back. All its keys
share a hash slot. Numbers are kept in double precision, exact up to 2^53.
"""

from __future__ import annotations

_ADD = """
-- Returns the sum of two rows of counters ('1 2 3'), or nil if one of them is none or a sum is too
-- large. A row may be longer than the other: a later version counts more. Rows of eight, as they
-- are now, are added without taking them apart one by one, which is most of a batch's time.
local eight = '^' .. string.rep('(%d+) ', 7) .. '(%d+)$'
local as_eight = string.rep('%.0f ', 7) .. '%.0f'

local function add(row, more)
  local a, b, c, d, e, f, g, h = string.match(row, eight)
  local i, j, k, l, m, n, o, p = string.match(more, eight)
  if h and p then
    a, b, c, d, e, f, g, h = a + i, b + j, c + k, d + l, e + m, f + n, g + o, h + p
    if math.max(a, b, c, d, e, f, g, h) > 9007199254740992 then return nil end
    return string.format(as_eight, a, b, c, d, e, f, g, h)
  end
  if not string.match(row .. ' ' .. more, '^[%d %-]+$') then return nil end
  local sums = {}
  for text in string.gmatch(row, '[^ ]+') do sums[#sums + 1] = tonumber(text) or 1 / 0 end
  local index = 0
  for text in string.gmatch(more, '[^ ]+') do
    index = index + 1
    sums[index] = (sums[index] or 0) + (tonumber(text) or 1 / 0)
  end
  for x = 1, #sums do
    if not (math.abs(sums[x]) <= 9007199254740992) then return nil end
    sums[x] = string.format('%.0f', sums[x])
  end
  return table.concat(sums, ' ')
end

-- Adds rows to an epoch's cells: all of them, or none if a field is corrupt, which is returned.
local function add_all(key, fields, rows)
  local sums = {}
  for start = 1, #fields, 500 do
    local stop = math.min(start + 499, #fields)
    local found = redis.call('HMGET', key, unpack(fields, start, stop))
    for i = start, stop do
      local row = found[i - start + 1]
      sums[i] = rows[i]
      if row then sums[i] = add(row, rows[i]) end
      if not sums[i] then return fields[i] end
    end
  end
  for start = 1, #fields, 500 do
    local pairs_ = {}
    for i = start, math.min(start + 499, #fields) do
      pairs_[#pairs_ + 1] = fields[i]
      pairs_[#pairs_ + 1] = sums[i]
    end
    redis.call('HSET', key, unpack(pairs_))
  end
  return nil
end

-- Gives an epoch another revision; the server's time makes it differ from those that a failover
-- lost. Returns the revision before and the new one.
local function revise(key, epoch)
  local before = redis.call('HGET', key, epoch)
  local count = before and tonumber(string.match(before, '^(%d+)')) or 0
  local time = redis.call('TIME')
  local after = string.format('%.0f', count + 1) .. '@' .. time[1] .. '.' .. time[2]
  redis.call('HSET', key, epoch, after)
  return before or '', after
end
"""

APPLY = (
    _ADD
    + """
-- Applies one batch of counts exactly once; all of it or nothing.
-- KEYS[1]  schema version (string)
-- KEYS[2]  generation (string)
-- KEYS[3]  watermark of the batch's incarnation (string)
-- KEYS[4]  cells of the batch's epoch, in the batch's generation (hash)
-- KEYS[5]  revisions of all epochs of the batch's generation (hash)
-- ARGV[1]  schema version of the caller
-- ARGV[2]  generation of the batch
-- ARGV[3]  sequence of the batch
-- ARGV[4]  start of the epoch, seconds since 1970
-- ARGV[5]  when the epoch expires, seconds since 1970
-- ARGV[6]  how much longer the watermark must live, seconds
-- ARGV[7]  cell, counters, cell, counters, ... joined by line feeds
-- returns  {'applied', sequence, revision before, revision now}
--          {'late', sequence}: the batch was applied, but its epoch has expired
--          {'stale', sequence}: likewise, but it was gathered before the counters were reset
--          {'duplicate' | 'gap', highest sequence applied}
--          {'schema', version found}, {'corrupt', key or field}: nothing was written
local schema = redis.call('GET', KEYS[1])
if schema and schema ~= ARGV[1] then return {'schema', schema} end
local generation = tonumber(redis.call('GET', KEYS[2]) or '0')
if not generation then return {'corrupt', KEYS[2]} end
local last = tonumber(redis.call('GET', KEYS[3]) or '0')
if not last then return {'corrupt', KEYS[3]} end

local sequence = tonumber(ARGV[3])
if sequence <= last then return {'duplicate', last} end
if sequence > last + 1 then return {'gap', last} end

local time = redis.call('TIME')
local left = math.max(0, tonumber(ARGV[5]) - tonumber(time[1]))
local watermark_ttl = math.max(redis.call('TTL', KEYS[3]), left + tonumber(ARGV[6]))

local status, before, after = 'applied', '', ''
if tonumber(ARGV[2]) < generation then
  status = 'stale'
elseif left == 0 then
  status = 'late'
else
  local fields, rows = {}, {}
  for field, row in string.gmatch(ARGV[7], '([^\\n]+)\\n([^\\n]+)') do
    fields[#fields + 1] = field
    rows[#rows + 1] = row
  end
  local corrupt = add_all(KEYS[4], fields, rows)
  if corrupt then return {'corrupt', corrupt} end
  redis.call('EXPIRE', KEYS[4], left)
  before, after = revise(KEYS[5], ARGV[4])
end
-- A batch of a later generation shows that a failover has lost the reset that began it.
if tonumber(ARGV[2]) > generation then redis.call('SET', KEYS[2], ARGV[2]) end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[3], ARGV[3], 'EX', watermark_ttl)
return {status, sequence, before, after}
"""
)

READ = """
-- Reads one epoch: its revision and its cells, of the same moment.
-- KEYS[1]  cells of the epoch (hash)
-- KEYS[2]  revisions (hash)
-- ARGV[1]  start of the epoch
-- returns  {revision or '', cell and counters, ... joined by line feeds}
return {redis.call('HGET', KEYS[2], ARGV[1]) or '',
        table.concat(redis.call('HGETALL', KEYS[1]), '\\n')}
"""

RESET = """
-- Starts a new generation, unless that was done already.
-- KEYS[1]  schema version (string)
-- KEYS[2]  generation (string)
-- ARGV[1]  schema version of the caller
-- ARGV[2]  generation to end
-- returns  {'reset', generation now}, {'schema', version found}, {'corrupt', key}
local schema = redis.call('GET', KEYS[1])
if schema and schema ~= ARGV[1] then return {'schema', schema} end
local generation = tonumber(redis.call('GET', KEYS[2]) or '0')
if not generation then return {'corrupt', KEYS[2]} end
if generation == tonumber(ARGV[2]) then
  generation = generation + 1
  redis.call('SET', KEYS[1], ARGV[1])
  redis.call('SET', KEYS[2], string.format('%.0f', generation))
end
return {'reset', string.format('%.0f', generation)}
"""

MOVE = (
    _ADD
    + """
-- Adds cells of an epoch to others and removes them; whoever adds up to the root sees no change.
-- KEYS[1]  cells of the epoch (hash)
-- KEYS[2]  revisions (hash)
-- ARGV[1]  start of the epoch
-- ARGV[2], ARGV[3], ...  cell, where it goes, cell, where it goes, ...
-- returns  {'moved', number of cells moved}, {'corrupt', field}: the cells before it were moved
local moved = 0
for i = 2, #ARGV, 2 do
  local row = redis.call('HGET', KEYS[1], ARGV[i])
  if row then
    local corrupt = add_all(KEYS[1], {ARGV[i + 1]}, {row})
    if corrupt then return {'corrupt', corrupt} end
    redis.call('HDEL', KEYS[1], ARGV[i])
    moved = moved + 1
  end
end
if moved > 0 then revise(KEYS[2], ARGV[1]) end
return {'moved', moved}
"""
)

DROP = """
-- Forgets an epoch.
-- KEYS[1]  cells of the epoch (hash)
-- KEYS[2]  revisions (hash)
-- ARGV[1]  start of the epoch
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return {'dropped', 0}
"""

BEGIN_MIGRATION = """
-- Says that the data is of schema 2 if it is of schema 1: from now on versions that know schema 1
-- only are refused, and the others add to what is taken over. Done twice it changes nothing.
-- KEYS[1]  schema version (string)
-- returns  {'schema', version now}
if redis.call('GET', KEYS[1]) == '1' then redis.call('SET', KEYS[1], '2') end
return {'schema', redis.call('GET', KEYS[1])}
"""

MIGRATE = (
    _ADD
    + """
-- Takes one epoch of schema 1 over into schema 2, or nothing of it if a field is corrupt.
-- KEYS[1]  cells of the epoch in schema 1: context/arm/version/counter -> integer (hash)
-- KEYS[2]  revisions in schema 1 (hash)
-- KEYS[3]  cells of the epoch in schema 2 (hash)
-- KEYS[4]  revisions in schema 2 (hash)
-- ARGV[1]  start of the epoch
-- ARGV[2], ...  names of the counters, in order
-- returns  {'migrated', number of cells}, {'corrupt', field}
local place = {}
for i = 2, #ARGV do place[ARGV[i]] = i - 1 end
local cells, fields, rows = {}, {}, {}
local old = redis.call('HGETALL', KEYS[1])
for i = 1, #old, 2 do
  local cell, counter = string.match(old[i], '^([^/]*/[^/]*/[^/]*)/([^/]+)$')
  if not cell or not string.match(old[i + 1], '^%-?%d+$') then return {'corrupt', old[i]} end
  if place[counter] then
    if not cells[cell] then
      cells[cell] = {}
      for index = 1, #ARGV - 1 do cells[cell][index] = '0' end
      fields[#fields + 1] = cell
    end
    cells[cell][place[counter]] = old[i + 1]
  end
end
for i = 1, #fields do rows[i] = table.concat(cells[fields[i]], ' ') end
local left = redis.call('TTL', KEYS[1])
if #fields > 0 then
  local corrupt = add_all(KEYS[3], fields, rows)
  if corrupt then return {'corrupt', corrupt} end
  if left > 0 then redis.call('EXPIRE', KEYS[3], left) end
  revise(KEYS[4], ARGV[1])
end
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return {'migrated', #fields}
"""
)
