// Chooses a kernel table by name.
#include "backend/cpu/isa.h"

#include <string>

namespace nibble::cpu {

Result<const KernelTable*> select_kernels(std::string_view isa) {
  const auto tables = usable_kernels();
  if (isa.empty()) return tables.front();
  std::string known;
  for (const KernelTable* table : tables) {
    if (isa == table->isa) return table;
    known += concat(known.empty() ? "" : ", ", table->isa);
  }
  return make_error(ErrorCode::unsupported,
                    {.what = "instruction set", .expected = known, .found = isa});
}

}  // namespace nibble::cpu
