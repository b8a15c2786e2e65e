// The targets that a build has code for, and the rule by which a card runs one of them. This is
// pure host code in every build: nothing here asks a card. The rules are those of the CUDA C++
// Programming Guide, "Binary Compatibility", "PTX Compatibility" and "Family-Specific and
// Architecture-Specific Features".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble::cuda {

/// A CodeTarget is one `--generate-code` of nvcc.
struct CodeTarget {
  enum class Kind : uint8_t { machine, ptx };  // sm_80, compute_80
  /// exact: 90a, this capability alone. family: 100f, this one and later ones of its major number.
  enum class Reach : uint8_t { portable, family, exact };
  int major = 0;
  int minor = 0;
  Kind kind = Kind::machine;
  Reach reach = Reach::portable;

  std::string name() const;  // "sm_90a", "PTX compute_80"
  bool operator==(const CodeTarget&) const = default;
};

/// Parses a list such as "80-real,90a-real,80-virtual", as CMake passes it. Errors:
/// invalid_argument for another form.
Result<std::vector<CodeTarget>> parse_code_targets(std::string_view list);

/// Returns a text such as "sm_80, sm_90a, PTX compute_80".
std::string code_targets_text(const std::vector<CodeTarget>& targets);

/// A card as the driver describes it, and how new the driver is: 13000 is CUDA 13.0.
struct CardFacts {
  std::string name;
  int major = 0;
  int minor = 0;
  int driver = 0;
};

/// Checks versions such as 13000. Errors: unsupported, for a driver that does not run programs of
/// this toolkit.
Result<void> check_driver(int driver, int toolkit);

/// Returns the code that the driver loads for the card: machine code made for it, else PTX, which
/// the driver compiles. Errors: unsupported, where the build has neither or the driver does not
/// know the toolkit's PTX. A card of capability 9.0 needs sm_90a: its kernels are chosen by
/// capability and exist there alone.
Result<CodeTarget> code_for(const CardFacts& card, const std::vector<CodeTarget>& targets,
                            int toolkit);

}  // namespace nibble::cuda
