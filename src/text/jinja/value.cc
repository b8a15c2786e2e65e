// Kinds, names, truth and equality of values.
#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

namespace nibble::jinja {

Value Value::undefined(std::string message) {
  Value value;
  value.data_ = std::make_shared<const Undefined>(Undefined{std::move(message)});
  return value;
}

Kind Value::kind() const {
  static constexpr Kind kKinds[] = {Kind::none,     Kind::undefined, Kind::boolean,
                                    Kind::integer,  Kind::floating,  Kind::string,
                                    Kind::sequence, Kind::dict,      Kind::name_space,
                                    Kind::callable, Kind::loop};
  return kKinds[data_.index()];
}

int64_t Value::weight() const {
  switch (kind()) {
    case Kind::string:
      return 1 + static_cast<int64_t>(as_text().size() / 64);
    case Kind::sequence:
      return as_sequence().weight;
    case Kind::dict:
      return as_dict().weight;
    case Kind::callable:
      return 1 + as_callable().self.weight();
    case Kind::loop:
      return 1 + as_loop().items->weight;
    default:
      return 1;
  }
}

int Value::depth() const {
  switch (kind()) {
    case Kind::sequence:
      return as_sequence().depth;
    case Kind::dict:
      return as_dict().depth;
    case Kind::callable:
      return 1 + as_callable().self.depth();
    case Kind::loop:
      return 1 + as_loop().items->depth;
    default:
      return 0;
  }
}

std::pair<const Value*, const Value*> Sequence::visit() const {
  const Value* begin = items.data();
  const Value* end = begin + items.size();
  if (kind == SequenceKind::iterator) {
    begin += consumed;
    consumed = items.size();
  }
  return {begin, end};
}

const Value* Dict::find(std::string_view text_key) const {
  const auto found = index.find(concat("s", text_key));
  return found == index.end() ? nullptr : &entries[found->second].value;
}

Result<std::string> dict_key(const Value& key) {
  switch (key.kind()) {
    case Kind::string:
      return concat("s", key.as_bytes());
    case Kind::none:
      return std::string("n");
    case Kind::boolean:
    case Kind::integer:
      return concat("i", key.as_int());
    case Kind::floating: {
      const double value = key.as_double();
      const bool integral = std::trunc(value) == value && std::fabs(value) < 9e18;
      if (integral) return concat("i", static_cast<int64_t>(value));
      return concat("f", value);
    }
    case Kind::sequence: {
      if (key.as_sequence().kind != SequenceKind::tuple) break;
      std::string out = "t";
      for (const Value& item : key.as_sequence().items) {
        const std::string part = TRY(dict_key(item));
        out += concat(part.size(), ":", part);
      }
      return out;
    }
    default:
      break;
  }
  return Error{ErrorCode::invalid_argument, concat("unhashable type: '", type_name(key), "'")};
}

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::none:
      return "NoneType";
    case Kind::undefined:
      return "Undefined";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::floating:
      return "float";
    case Kind::string:
      return value.as_text().markup ? "Markup" : "str";
    case Kind::sequence:
      return value.as_sequence().type;
    case Kind::dict:
      return "dict";
    case Kind::name_space:
      return "Namespace";
    case Kind::loop:
      return "LoopContext";
    case Kind::callable:
      break;
  }
  const Callable& callable = value.as_callable();
  if (callable.kind == Callable::Kind::macro) return "Macro";
  return callable.kind == Callable::Kind::method ? "builtin_function_or_method" : "function";
}

std::string object_name(const Value& value) {
  const std::string name = type_name(value);
  if (value.is(Kind::none)) return "None";
  if (value.is(Kind::name_space)) return "jinja2.utils.Namespace object";
  if (value.is(Kind::loop)) return "jinja2.runtime.LoopContext object";
  if (name == "Macro") return "jinja2.runtime.Macro object";
  if (name == "Markup") return "markupsafe.Markup object";
  return name + " object";
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::none:
    case Kind::undefined:
      return false;
    case Kind::boolean:
      return value.as_bool();
    case Kind::integer:
      return value.as_int() != 0;
    case Kind::floating:
      return value.as_double() != 0;
    case Kind::string:
      return !value.as_text().empty();
    case Kind::sequence: {
      const Sequence& sequence = value.as_sequence();
      return sequence.kind == SequenceKind::iterator || !sequence.items.empty();
    }
    case Kind::dict:
      return !value.as_dict().entries.empty();
    default:
      return true;
  }
}

namespace {

bool equal_sequences(const Sequence& left, const Sequence& right) {
  if (&left == &right) return true;
  if (left.type != right.type || left.kind == SequenceKind::iterator) return false;
  return std::ranges::equal(left.items, right.items, equals);
}

bool equal_dicts(const Dict& left, const Dict& right) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, position] : left.index) {
    const auto other = right.index.find(key);
    if (other == right.index.end()) return false;
    if (!equals(left.entries[position].value, right.entries[other->second].value)) return false;
  }
  return true;
}

}  // namespace

bool equals(const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) return left.as_int() == right.as_int();
    return left.as_double() == right.as_double();
  }
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::none:
    case Kind::undefined:
      return true;
    case Kind::string:
      return left.as_bytes() == right.as_bytes();
    case Kind::sequence:
      return equal_sequences(left.as_sequence(), right.as_sequence());
    case Kind::dict:
      return equal_dicts(left.as_dict(), right.as_dict());
    case Kind::name_space:
      return &left.as_namespace() == &right.as_namespace();
    case Kind::callable:
      return &left.as_callable() == &right.as_callable();
    default:
      return false;
  }
}

}  // namespace nibble::jinja
