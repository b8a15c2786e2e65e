// Names from words; flags and files as one model to serve.
#include "cli/serving/client_setup.h"

#include <chrono>

#include "cli/options/flag_errors.h"
#include "cli/options/folders.h"

namespace nibble {

namespace {

Result<TemplateLimits> read_template_limits(const Arguments& arguments) {
  FlagErrors errors;
  TemplateLimits limits;
  limits.steps_max =
      errors.take(arguments.integer(kTemplateStepsOption.name, 1000, int64_t{1} << 40));
  limits.output_bytes_max = static_cast<size_t>(
      errors.take(arguments.integer(kTemplateBytesOption.name, 1024, int64_t{1} << 32)));
  // There may not be more levels: each level of a template takes levels of the machine's stack.
  limits.depth_max = static_cast<int>(
      errors.take(arguments.integer(kTemplateDepthOption.name, 10, TemplateLimits{}.depth_max)));
  TRY(errors.result());
  return limits;
}

}  // namespace

Result<ClientSetup> read_client_setup(const Arguments& arguments) {
  ClientSetup clients;
  clients.names = split_list(arguments.text(kServedNamesOption.name).value_or(""));
  FlagErrors errors;
  clients.profiles = errors.take(read_profiles(arguments));
  clients.policy = errors.take(read_answer_policy(arguments));
  clients.template_limits = errors.take(read_template_limits(arguments));
  clients.images = errors.take(read_image_flags(arguments));
  TRY(errors.result());
  if (!clients.names.empty() || arguments.positional_count() == 0) return clients;
  const std::string& folder = arguments.positional(0);
  if (const auto hub = hub_name_of(folder)) {
    clients.names = {hub->repository};
    return clients;
  }
  clients.names = {folder_name(folder)};
  if (folder != clients.names[0]) clients.unlisted_names.push_back(folder);
  return clients;
}

Result<ServedModel> load_for_clients(ClientSetup clients, const EngineSetup& setup,
                                     const std::filesystem::path& folder, std::string& notice) {
  ServedModel served = TRY(load_served_model(folder, setup.model.config, clients.template_limits));
  served.names = std::move(clients.names);
  served.unlisted_names = std::move(clients.unlisted_names);
  served.profiles = std::move(clients.profiles);
  served.policy = std::move(clients.policy);
  served.context_max = setup.plan.context_max;
  served.images = TRY(make_image_intake(clients.images, setup.model.config,
                                        setup.plan.image_tokens_max, folder, notice));
  served.created = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  return served;
}

}  // namespace nibble
