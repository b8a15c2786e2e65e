// Says which attributes are methods, and has the methods of containers.
#include "text/jinja/methods.h"

#include <algorithm>
#include <span>

#include "text/jinja/arguments.h"
#include "text/jinja/print.h"

namespace nibble::jinja {

namespace {

using Names = std::span<const std::string_view>;

bool among(Names names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

constexpr std::string_view kText[] = {
    "capitalize",   "center",       "count",   "endswith",   "find",       "format",  "index",
    "isalnum",      "isalpha",      "isascii", "isdecimal",  "isdigit",    "islower", "isspace",
    "istitle",      "isupper",      "join",    "ljust",      "lower",      "lstrip",  "partition",
    "removeprefix", "removesuffix", "replace", "rfind",      "rindex",     "rjust",   "rpartition",
    "rsplit",       "rstrip",       "split",   "splitlines", "startswith", "strip",   "swapcase",
    "title",        "upper",        "zfill"};
constexpr std::string_view kTextUnsupported[] = {"casefold",    "encode",       "expandtabs",
                                                 "format_map",  "isidentifier", "isnumeric",
                                                 "isprintable", "maketrans",    "translate"};
constexpr std::string_view kList[] = {"count", "index", "copy"};
constexpr std::string_view kListForbidden[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kTuple[] = {"count", "index"};
constexpr std::string_view kDict[] = {"items", "keys", "values", "get", "copy"};
constexpr std::string_view kDictForbidden[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kLoop[] = {"cycle", "changed"};

MethodAccess lookup(std::string_view name, Names callable, Names forbidden, Names unsupported) {
  if (among(callable, name)) return MethodAccess::callable;
  if (among(forbidden, name)) return MethodAccess::forbidden;
  return among(unsupported, name) ? MethodAccess::unsupported : MethodAccess::none;
}

Result<Value> dict_view(Runtime& runtime, const Value& self, std::string_view name) {
  std::vector<Value> items;
  for (const DictEntry& entry : self.as_dict().entries) {
    if (name == "keys") {
      items.push_back(entry.key);
    } else if (name == "values") {
      items.push_back(entry.value);
    } else {
      Value pair = TRY(runtime.list({entry.key, entry.value}, SequenceKind::tuple, "tuple"));
      items.push_back(pair.tag(self.origin()));
    }
  }
  Value view = TRY(runtime.list(std::move(items), SequenceKind::view, concat("dict_", name)));
  return view.tag(self.origin());
}

Result<Value> dict_method(Runtime& runtime, const Value& self, std::string_view name,
                          const Arguments& arguments) {
  if (name == "get") {
    const auto bound = TRY(bind(arguments, "get", {"key", "default"}, 1));
    const std::string key = TRY(dict_key(*bound[0]));
    const auto found = self.as_dict().index.find(key);
    if (found != self.as_dict().index.end()) return self.as_dict().entries[found->second].value;
    return bound[1] != nullptr ? *bound[1] : Value();
  }
  TRY(bind(arguments, name, {}));
  if (name == "copy") return self;
  return dict_view(runtime, self, name);
}

Result<Value> list_method(Runtime& runtime, const Value& self, std::string_view name,
                          const Arguments& arguments) {
  if (name == "copy") {
    TRY(bind(arguments, name, {}));
    return self;
  }
  const auto bound = TRY(bind(arguments, name, {"value"}, 1));
  TRY(runtime.charge(self.weight()));
  const auto& items = self.as_sequence().items;
  const auto same = [&](const Value& item) { return equals(item, *bound[0]); };
  if (name == "count") return Value(int64_t{std::ranges::count_if(items, same)});
  const auto found = std::ranges::find_if(items, same);
  if (found != items.end()) return Value(int64_t{found - items.begin()});
  const Text repr = TRY(to_repr(runtime, *bound[0]));
  const bool tuple = self.as_sequence().kind == SequenceKind::tuple;
  return fail(tuple ? "tuple.index(x): x not in tuple" : concat(repr.bytes(), " is not in list"));
}

Result<Value> loop_method(Loop& loop, std::string_view name, const Arguments& arguments) {
  if (!arguments.keyword.empty()) return fail(concat(name, "() takes no keyword arguments"));
  if (name == "cycle") {
    if (arguments.positional.empty()) return fail("no items for cycling given");
    return arguments.positional[loop.index0 % arguments.positional.size()];
  }
  for (const Value& value : arguments.positional) {
    if (value.is(Kind::loop)) return fail("loop.changed does not take the loop itself");
  }
  const bool same =
      loop.changed_called && std::ranges::equal(loop.changed, arguments.positional, equals);
  loop.changed_called = true;
  loop.changed = arguments.positional;
  return Value(!same);
}

}  // namespace

MethodAccess method_access(const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::string:
      return lookup(name, kText, {}, kTextUnsupported);
    case Kind::dict:
      return lookup(name, kDict, kDictForbidden, {});
    case Kind::loop:
      return lookup(name, kLoop, {}, {});
    case Kind::sequence:
      break;
    default:
      return MethodAccess::none;
  }
  const auto kind = value.as_sequence().kind;
  if (kind == SequenceKind::list) return lookup(name, kList, kListForbidden, {});
  const bool tuple = kind == SequenceKind::tuple || kind == SequenceKind::range;
  return tuple ? lookup(name, kTuple, {}, {}) : MethodAccess::none;
}

bool is_unsupported_method(std::string_view name) { return among(kTextUnsupported, name); }

Result<Value> call_method(Runtime& runtime, const Callable& method, const Arguments& arguments) {
  const Value& self = method.self;
  TRY(runtime.charge(1 + (self.is(Kind::string) ? self.weight() : 0)));
  switch (self.kind()) {
    case Kind::string:
      return call_text_method(runtime, self.as_text(), method.name, arguments);
    case Kind::dict:
      return dict_method(runtime, self, method.name, arguments);
    case Kind::loop:
      return loop_method(self.as_loop(), method.name, arguments);
    default:
      return list_method(runtime, self, method.name, arguments);
  }
}

}  // namespace nibble::jinja
