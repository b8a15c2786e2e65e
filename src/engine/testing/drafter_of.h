// DrafterOf, for tests: a drafter that is a function.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "engine/sample/drafter.h"

namespace nibble {

class DrafterOf final : public Drafter {
 public:
  using Propose = std::function<void(const Sequence&, int32_t, std::vector<int32_t>&)>;
  explicit DrafterOf(Propose propose) : propose_(std::move(propose)) {}
  void propose(const Sequence& sequence, int32_t count_max, std::vector<int32_t>& drafts) override {
    propose_(sequence, count_max, drafts);
  }

 private:
  Propose propose_;
};

}  // namespace nibble
