// The parsed template. One struct for expressions and one for statements; `kind` says which fields
// count. Immutable after parsing and shared by all renderings.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/jinja/value.h"

namespace nibble::jinja {

class Runtime;
struct Arguments;
using FilterFunction = Result<Value> (*)(Runtime&, const Value&, const Arguments&);
using TestFunction = Result<bool> (*)(Runtime&, const Value&, const Arguments&);

enum class ExprKind {
  constant,     // constant
  name,         // name
  list,         // operands
  tuple,        // operands
  dict,         // operands: key, value, key, value ...
  attribute,    // operands[0] . name
  item,         // operands[0] [ operands[1] ]
  slice,        // operands: start, stop, step, each may be null; only as the index of an item
  call,         // operands[0] ( arguments )
  filter,       // operands[0] | name ( arguments ); operands[0] null: the block's text
  test,         // operands[0] is name ( arguments )
  negative,     // operands[0]
  positive,     // operands[0]
  logical_not,  // operands[0]
  logical_and,  // operands[0], operands[1]
  logical_or,   // operands[0], operands[1]
  binary,       // operands[0] op operands[1]
  concat,       // operands joined by ~
  compare,      // operands[0] ops[0] operands[1] ops[1] ...
  conditional,  // operands: value, condition, otherwise (may be null)
};

enum class Operator {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in
};

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

struct Argument {
  std::string name;  // empty: positional
  ExprPtr value;
};

struct Expr {
  ExprKind kind = ExprKind::constant;
  int line = 0;
  int depth = 1;  // of this tree
  std::string name;
  Value constant;
  std::vector<ExprPtr> operands;
  std::vector<Argument> arguments;
  std::vector<Operator> ops;
  FilterFunction filter = nullptr;
  TestFunction test = nullptr;
};

/// The target of an assignment: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;
  std::vector<Target> items;
};

struct Parameter {
  std::string name;
  ExprPtr fallback;  // may be null
};

struct Statement;
using Block = std::vector<std::unique_ptr<const Statement>>;

struct Branch {
  ExprPtr condition;  // null: else
  Block body;
};

enum class StatementKind {
  text,          // text
  output,        // expr
  assign,        // target = expr
  assign_block,  // target = body through expr (a filter chain) if not null
  for_loop,      // target, expr, condition (may be null), body, else_body
  if_chain,      // branches
  macro,         // name, parameters, body
  filter_block,  // expr (a filter chain) over body
  with,          // assignments, body
  scope,         // body, with its own variables (the tag `generation`)
  break_loop,
  continue_loop,
};

struct Statement {
  StatementKind kind = StatementKind::text;
  int line = 0;
  std::string name;
  Value text;
  Target target;
  ExprPtr expr;
  ExprPtr condition;
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Block body;
  Block else_body;
  bool uses_varargs = false;  // of a macro
  bool uses_kwargs = false;
};

}  // namespace nibble::jinja
