// The part of a model that clients see and no file says: names, profiles, how answers are made.
// Flags are read before the model is loaded, so a wrong one is reported at once.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options/image_options.h"
#include "cli/options/split_list.h"
#include "cli/serving/answer_options.h"
#include "cli/serving/engine_setup.h"
#include "cli/serving/profiles_file.h"
#include "cli/verb.h"
#include "server/served_model.h"

namespace nibble {

inline constexpr Option kServedNamesOption = {
    "served-model-name",
    "NAME",
    "",
    "names of the model in the API: all words up to the next option, or with commas",
    "",
    OptionForm::several};

inline constexpr Option kTemplateStepsOption = {"max-template-steps", "N", "5m",
                                                "steps of the chat template for one prompt"};
inline constexpr Option kTemplateBytesOption = {"max-template-bytes", "N", "16M",
                                                "bytes of the text that the chat template makes"};
inline constexpr Option kTemplateDepthOption = {
    "max-template-depth", "N", "200", "levels of nesting in the chat template and its values"};

inline constexpr auto kClientOptions =
    joined_options(std::array{kServedNamesOption, kProfilesOption, kAnswerReserveOption,
                              kStrictFieldsOption, kReasoningFieldOption, kTemplateStepsOption,
                              kTemplateBytesOption, kTemplateDepthOption},
                   kImageOptions);

struct ClientSetup {
  /// Those of --served-model-name, else ORG/NAME of a model of the Hugging Face cache, else the
  /// folder's name.
  std::vector<std::string> names;
  /// The word the folder was given as, where its name is used: clients may know it.
  std::vector<std::string> unlisted_names;
  Profiles profiles;
  AnswerPolicy policy;
  TemplateLimits template_limits;
  ImageFlags images;
};

/// The rows above and the first positional. Errors: one line per flag with a value it cannot have,
/// and those of read_profiles.
Result<ClientSetup> read_client_setup(const Arguments& arguments);

/// The model of `folder` as clients see it, served from now on. `notice` gets lines for people.
/// Errors: those of load_served_model and make_image_intake.
Result<ServedModel> load_for_clients(ClientSetup clients, const EngineSetup& setup,
                                     const std::filesystem::path& folder, std::string& notice);

}  // namespace nibble
