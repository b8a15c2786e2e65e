// `nibble plan --fetch`: of a model on the hub its config.json, its index and the headers of its
// weight files, and never a tensor. Nothing is written, not even into the cache.
#pragma once

#include <string>

#include "cli/plan/plan_model.h"

namespace nibble {

inline constexpr Option kFetchOption = {"fetch", "", "",
                                        "ask the hub for a model ORG/NAME: its config.json and the "
                                        "headers of its weight files, never a "
                                        "tensor; nothing is kept"};

/// `word` is ORG/NAME[@REV]; --revision, --endpoint, --token and the environment count as for
/// `nibble pull`. Errors: invalid_argument under HF_HUB_OFFLINE; those of find_revision,
/// read_remote_file and read_remote_range; corrupt for files that are no checkpoint, and where the
/// headers together exceed 1 GiB.
Result<FetchedModel> fetch_model(const Arguments& arguments, const std::string& word,
                                 Terminal& terminal);

}  // namespace nibble
