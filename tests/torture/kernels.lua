-- Programs that a compiler at run time turns into machine code: loops, tables, strings, closures, coroutines, errors.
-- Prints what they compute; LuaJIT and Lua agree.

local function mandelbrot(size)
  local inside = 0
  for y = 0, size - 1 do
    for x = 0, size - 1 do
      local cr, ci, zr, zi, n = 2 * x / size - 1.5, 2 * y / size - 1, 0, 0, 0
      while zr * zr + zi * zi < 4 and n < 60 do
        zr, zi, n = zr * zr - zi * zi + cr, 2 * zr * zi + ci, n + 1
      end
      inside = inside + n
    end
  end
  return inside
end

local function sieve(limit)
  local composite, sum = {}, 0
  for n = 2, limit do
    if not composite[n] then
      sum = sum + n
      for multiple = n * n, limit, n do composite[multiple] = true end
    end
  end
  return sum
end

local function trees(depth)
  local function make(level) return level == 0 and {} or { make(level - 1), make(level - 1) } end
  local function count(tree) return tree[1] and 1 + count(tree[1]) + count(tree[2]) or 1 end
  local sum = 0
  for _ = 1, 12 do sum = sum + count(make(depth)) end
  return sum
end

local function fannkuch(n)
  local p, q, s, sign, maxflips, sum = {}, {}, {}, 1, 0, 0
  for i = 1, n do p[i], q[i], s[i] = i, i, i end
  repeat
    local q0 = p[1]
    if q0 ~= 1 then
      for i = 2, n do q[i] = p[i] end
      local flips = 1
      while true do
        local qq = q[q0]
        if qq == 1 then
          sum = sum + sign * flips
          if flips > maxflips then maxflips = flips end
          break
        end
        q[q0] = q0
        if q0 >= 4 then
          local i, j = 2, q0 - 1
          repeat q[i], q[j] = q[j], q[i]; i = i + 1; j = j - 1 until i >= j
        end
        q0, flips = qq, flips + 1
      end
    end
    if sign == 1 then
      p[1], p[2], sign = p[2], p[1], -1
    else
      p[2], p[3], sign = p[3], p[2], 1
      for i = 3, n do
        local sx = s[i]
        if sx ~= 1 then s[i] = sx - 1; break end
        if i == n then return sum, maxflips end
        s[i] = i
        local t = p[1]
        for j = 1, i do p[j] = p[j + 1] end
        p[i + 1] = t
      end
    end
  until false
end

local function words(count)
  local seen, parts = {}, {}
  for i = 1, count do
    local word = string.format("%x", i * 7919 % 10007)
    seen[word] = (seen[word] or 0) + 1
    parts[#parts + 1] = word:reverse():gsub("[0-4]", "-")
  end
  local keys = {}
  for word in pairs(seen) do keys[#keys + 1] = word end
  table.sort(keys)
  return #table.concat(parts), keys[1], keys[#keys], #keys
end

local function errors(count)
  local caught = 0
  for i = 1, count do
    local ok = pcall(function() if i % 3 == 0 then error({ i }) end return i end)
    if not ok then caught = caught + 1 end
  end
  local numbers = coroutine.wrap(function() for i = 1, count do coroutine.yield(i) end end)
  for i = 1, count do caught = caught + numbers() % 7 end
  return caught
end

print(mandelbrot(160))
print(sieve(200000))
print(trees(9))
print(fannkuch(8))
print(words(20000))
print(errors(20000))
