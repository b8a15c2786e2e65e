// Flags to AnswerPolicy.
#include "cli/answer_options.h"

namespace nibble {

Result<AnswerPolicy> read_answer_policy(const Arguments& arguments) {
  AnswerPolicy policy;
  policy.answer_reserve =
      static_cast<int32_t>(TRY(arguments.integer("answer-reserve", 0, int64_t{1} << 24)));
  return policy;
}

}  // namespace nibble
