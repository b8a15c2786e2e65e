// nibble inspect: what is in a checkpoint.
#include "quantize/verify/inspect.h"

#include "cli/options/folders.h"

namespace nibble {
namespace {

constexpr Option kOptions[] = {
    {"tensors", "", "", "list every tensor: name, type, shape, bytes, file"},
    {"json", "", "", "print one JSON document instead"},
    kRevisionOption,
};

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const bool tensors = arguments.enabled("tensors");
  const auto folder = TRY(first_folder(arguments, terminal));
  const Inspection inspection = TRY(inspect_checkpoint(folder));
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
