// Value: what a template computes with, with Python's kinds. Lists and dicts are immutable and
// shared; namespaces are the only things that change and belong to the Runtime. No operators here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/jinja/tagged_text.h"

namespace nibble::jinja {

struct Sequence;
struct Dict;
struct Namespace;
struct Callable;
struct Loop;
struct Statement;

/// A missing variable or attribute: prints as nothing, fails with `message` when used otherwise.
struct Undefined {
  std::string message;
};

enum class Kind {
  none,
  undefined,
  boolean,
  integer,
  floating,
  string,
  sequence,
  dict,
  name_space,
  callable,
  loop,
};

class Value {
 public:
  Value() = default;
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(Text text) : data_(std::make_shared<const Text>(std::move(text))) {}
  explicit Value(std::shared_ptr<const Sequence> value) : data_(std::move(value)) {}
  explicit Value(std::shared_ptr<const Dict> value) : data_(std::move(value)) {}
  explicit Value(Namespace* value) : data_(value) {}
  explicit Value(std::shared_ptr<const Callable> value) : data_(std::move(value)) {}
  explicit Value(std::shared_ptr<Loop> value) : data_(std::move(value)) {}
  static Value undefined(std::string message);

  Kind kind() const;
  bool is(Kind other) const { return kind() == other; }
  bool is_number() const { return is(Kind::integer) || is(Kind::floating) || is(Kind::boolean); }
  bool is_integral() const { return is(Kind::integer) || is(Kind::boolean); }

  // The wrong kind is a programmer error.
  bool as_bool() const { return get<bool>(); }
  int64_t as_int() const { return is(Kind::boolean) ? (as_bool() ? 1 : 0) : get<int64_t>(); }
  double as_double() const { return is(Kind::floating) ? get<double>() : double(as_int()); }
  const Text& as_text() const { return *get<std::shared_ptr<const Text>>(); }
  const std::string& as_bytes() const { return as_text().bytes(); }
  const Sequence& as_sequence() const { return *get<std::shared_ptr<const Sequence>>(); }
  const std::shared_ptr<const Sequence>& shared_sequence() const {
    return get<std::shared_ptr<const Sequence>>();
  }
  const Dict& as_dict() const { return *get<std::shared_ptr<const Dict>>(); }
  Namespace& as_namespace() const { return *get<Namespace*>(); }
  const Callable& as_callable() const { return *get<std::shared_ptr<const Callable>>(); }
  Loop& as_loop() const { return *get<std::shared_ptr<Loop>>(); }
  const std::string& undefined_message() const {
    return get<std::shared_ptr<const Undefined>>()->message;
  }

  /// The origin of a number, list or dict; strings know it per byte.
  Origin origin() const { return is(Kind::string) ? as_text().origin() : origin_; }
  Value& tag(Origin origin) {
    origin_ = origin;
    return *this;
  }

  /// Nodes plus 64-byte chunks of text in this tree: what walking it costs.
  int64_t weight() const;
  /// 0 for scalars, 1 for a list of scalars ...
  int depth() const;

 private:
  template <typename T>
  const T& get() const {
    CHECK(std::holds_alternative<T>(data_), "a value of kind ", data_.index());
    return std::get<T>(data_);
  }

  std::variant<std::monostate, std::shared_ptr<const Undefined>, bool, int64_t, double,
               std::shared_ptr<const Text>, std::shared_ptr<const Sequence>,
               std::shared_ptr<const Dict>, Namespace*, std::shared_ptr<const Callable>,
               std::shared_ptr<Loop>>
      data_;
  Origin origin_ = Origin::from_template;
};

enum class SequenceKind { list, tuple, range, view, iterator };

struct Sequence {
  SequenceKind kind = SequenceKind::list;
  std::string type = "list";  // Python's type name
  std::vector<Value> items;
  int64_t weight = 1;
  int depth = 1;
  mutable size_t consumed = 0;  // iterators only: items already handed out

  /// Items still to visit; an iterator is exhausted by this.
  std::pair<const Value*, const Value*> visit() const;
};

struct DictEntry {
  Value key;
  Value value;
};

struct Dict {
  std::vector<DictEntry> entries;                 // insertion order, keys distinct
  std::unordered_map<std::string, size_t> index;  // dict_key() -> entry
  int64_t weight = 1;
  int depth = 1;

  const Value* find(std::string_view text_key) const;
};

/// Equal strings for keys that Python holds equal (1, 1.0 and true). Error: unhashable type.
Result<std::string> dict_key(const Value& key);

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

/// A function: one of the global ones, a method bound to its object, or a macro.
struct Callable {
  enum class Kind { global, method, macro };
  Kind kind = Kind::global;
  std::string name;
  Value self;                        // of a method
  const Statement* macro = nullptr;  // of a macro
};

/// The `loop` variable.
struct Loop {
  std::shared_ptr<const Sequence> items;
  size_t index0 = 0;
  std::vector<Value> changed;  // arguments of the last loop.changed(...)
  bool changed_called = false;
};

/// Python's type(value).__name__, and Jinja's name of it in messages ("dict object").
std::string type_name(const Value& value);
std::string object_name(const Value& value);

/// Python's bool(value).
bool truthy(const Value& value);
/// Python's ==. Cost: the smaller weight.
bool equals(const Value& left, const Value& right);

}  // namespace nibble::jinja
