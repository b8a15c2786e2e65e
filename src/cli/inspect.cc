// nibble inspect: what is in a checkpoint.
#include "quantize/inspect.h"

#include "cli/verb.h"

namespace nibble {
namespace {

constexpr Option kOptions[] = {
    {"tensors", "", "", "list every tensor: name, type, shape, bytes, file"},
    {"json", "", "", "print one JSON document instead"},
};

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const bool tensors = arguments.enabled("tensors");
  const Inspection inspection = TRY(inspect_checkpoint(arguments.positional(0)));
  if (arguments.enabled("json")) {
    const auto list = tensors ? TensorList::included : TensorList::left_out;
    TRY(terminal.out(inspection_json(inspection, list).dump_pretty()));
    return kExitOk;
  }
  TRY(terminal.out(inspection_text(inspection)));
  if (tensors) TRY(terminal.out(concat("\n", tensor_list_text(inspection))));
  return kExitOk;
}

}  // namespace

const Verb kInspectVerb = {.name = "inspect",
                           .positionals = "DIR",
                           .summary = "Shows what is in a checkpoint and how it is stored",
                           .options = kOptions,
                           .run = run};

}  // namespace nibble
