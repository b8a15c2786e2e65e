// How the verbs `pull` and `push` reach the hub: their common options, and the environment that
// huggingface_hub obeys too.
#pragma once

#include <filesystem>
#include <string>

#include "cli/verb.h"
#include "hub/hub_name.h"
#include "hub/hub_session.h"

namespace nibble {

inline constexpr Option kEndpointOption = {
    "endpoint", "URL", "",
    "the hub or a mirror of it; else HF_ENDPOINT, else https://huggingface.co"};
inline constexpr Option kTokenOption = {"token", "TOKEN", "",
                                        "access token; better HF_TOKEN, or the file that `hf auth "
                                        "login` writes: others see the words of "
                                        "a command"};

/// The model that `word` means, ORG/NAME[@REV] or the name of one in the cache, with --revision.
/// Errors: invalid_argument.
Result<HubName> hub_model_of(const Arguments& arguments, const std::string& word);

/// The settings by flags and environment: HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HOME,
/// HF_HUB_DISABLE_IMPLICIT_TOKEN, HF_HUB_DOWNLOAD_TIMEOUT, SSL_CERT_FILE. Errors: invalid_argument
/// for an endpoint or token that cannot be one.
Result<HubSettings> hub_settings(const Arguments& arguments);

/// True if HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids the network.
bool hub_is_offline();

/// The cache's folder by the environment.
std::filesystem::path hub_cache();

/// A line if the token goes unencrypted over the network; else empty.
std::string token_warning(const HubSettings& settings);

}  // namespace nibble
