// Global functions.
#include "text/jinja/globals.h"

#include <algorithm>
#include <ctime>

#include "text/jinja/arguments.h"
#include "text/jinja/print.h"

namespace nibble::jinja {

namespace {

constexpr int64_t kRangeMax = 100'000;  // the limit of Jinja's sandbox

Result<Value> range(Runtime& runtime, const Arguments& arguments) {
  const auto& given = arguments.positional;
  if (!arguments.keyword.empty()) return fail("range() takes no keyword arguments");
  if (given.empty()) return fail("range expected at least 1 argument, got 0");
  if (given.size() > 3) {
    return fail(concat("range expected at most 3 arguments, got ", given.size()));
  }
  const int64_t first = TRY(int_argument(given[0]));
  const int64_t start = given.size() > 1 ? first : 0;
  const int64_t stop = given.size() > 1 ? TRY(int_argument(given[1])) : first;
  const int64_t step = given.size() > 2 ? TRY(int_argument(given[2])) : 1;
  if (step == 0) return fail("range() arg 3 must not be zero");
  const __int128 distance = step > 0 ? __int128{stop} - start : __int128{start} - stop;
  const __int128 stride = step > 0 ? __int128{step} : -__int128{step};
  const __int128 count = distance > 0 ? (distance + stride - 1) / stride : 0;
  if (count > kRangeMax) {
    return fail(concat("Range too big. The sandbox blocks ranges larger than MAX_RANGE (",
                       kRangeMax, ")."));
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) {
    items.push_back(Value(start + i * step));
  }
  return runtime.list(std::move(items), SequenceKind::range, "range");
}

Result<Value> name_space(Runtime& runtime, const Arguments& arguments) {
  Namespace* out = runtime.new_namespace();
  if (arguments.positional.size() > 1) {
    return fail("namespace() takes one mapping and keyword arguments");
  }
  const auto set = [&](const std::string& name, const Value& value) {
    const auto found =
        std::ranges::find(out->attributes, name, &std::pair<std::string, Value>::first);
    if (found != out->attributes.end()) {
      found->second = value;
    } else {
      out->attributes.emplace_back(name, value);
    }
  };
  for (const Value& given : arguments.positional) {
    if (!given.is(Kind::dict)) return fail("namespace() takes a mapping");
    for (const DictEntry& entry : given.as_dict().entries) {
      if (!entry.key.is(Kind::string)) return fail("namespace() takes text keys");
      set(entry.key.as_bytes(), entry.value);
    }
  }
  for (const auto& [name, value] : arguments.keyword) set(name, value);
  return Value(out);
}

Result<Value> dict(Runtime& runtime, const Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    return fail(concat("dict expected at most 1 argument, got ", arguments.positional.size()));
  }
  std::vector<DictEntry> entries;
  for (const Value& given : arguments.positional) {
    if (given.is(Kind::dict)) {
      entries = given.as_dict().entries;
      continue;
    }
    for (const Value& pair : TRY(iterate(runtime, given))) {
      const std::vector<Value> both = TRY(iterate(runtime, pair));
      if (both.size() != 2) return fail("dict() takes pairs");
      entries.push_back({both[0], both[1]});
    }
  }
  for (const auto& [name, value] : arguments.keyword) {
    entries.push_back({Value(Text(name)), value});
  }
  return runtime.dict(std::move(entries));
}

Result<Value> raise_exception(Runtime& runtime, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "raise_exception", {"message"}, 1));
  const Text message = TRY(to_text(runtime, *bound[0]));
  return runtime.raise(message.bytes());
}

Result<Value> strftime_now(Runtime& runtime, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "strftime_now", {"format"}, 1));
  const Text* format = TRY(text_argument(*bound[0], "strftime_now"));
  const auto days = std::chrono::floor<std::chrono::days>(runtime.now());
  const std::chrono::year_month_day date(days);
  const std::chrono::hh_mm_ss time(runtime.now() - days);
  const auto new_year = std::chrono::local_days(date.year() / 1 / 1);
  std::tm parts{};
  parts.tm_year = static_cast<int>(date.year()) - 1900;
  parts.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
  parts.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
  parts.tm_hour = static_cast<int>(time.hours().count());
  parts.tm_min = static_cast<int>(time.minutes().count());
  parts.tm_sec = static_cast<int>(time.seconds().count());
  parts.tm_wday = static_cast<int>(std::chrono::weekday(days).c_encoding());
  parts.tm_yday = static_cast<int>((days - new_year).count());
  if (format->size() > 1000) return fail("strftime_now takes a format of at most 1000 bytes");
  // A leading mark tells an empty result from a failed call.
  const std::string marked = concat("#", format->bytes());
  std::string out(32'768, '\0');
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const size_t length = std::strftime(out.data(), out.size(), marked.c_str(), &parts);
#pragma GCC diagnostic pop
  if (length == 0) return fail("strftime_now makes too long a text");
  return runtime.text(Text(out.substr(1, length - 1), format->origin()));
}

struct NamedGlobal {
  std::string_view name;
  Result<Value> (*function)(Runtime&, const Arguments&);
};
constexpr NamedGlobal kGlobals[] = {{"range", range},
                                    {"namespace", name_space},
                                    {"dict", dict},
                                    {"raise_exception", raise_exception},
                                    {"strftime_now", strftime_now}};

}  // namespace

std::optional<Value> find_global(std::string_view name) {
  if (std::ranges::find(kGlobals, name, &NamedGlobal::name) == std::end(kGlobals)) return {};
  Callable function{.kind = Callable::Kind::global, .name = std::string(name)};
  return Value(std::make_shared<const Callable>(std::move(function)));
}

bool is_unsupported_global(std::string_view name) {
  return name == "lipsum" || name == "cycler" || name == "joiner";
}

Result<Value> call_global(Runtime& runtime, const Callable& function, const Arguments& arguments) {
  const auto* found = std::ranges::find(kGlobals, function.name, &NamedGlobal::name);
  CHECK(found != std::end(kGlobals), function.name);
  return found->function(runtime, arguments);
}

}  // namespace nibble::jinja
