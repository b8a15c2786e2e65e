// Asks the operating system, one question after the other.
#include "cli/plan/machine_facts.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "backend/cpu/isa.h"
#include "backend/cuda/cuda_backend.h"
#include "base/thread_pool.h"
#include "cli/card/nvml.h"
#include "cli/options/folders.h"
#include "cli/serving/engine_setup.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

/// True if a PCI device is a graphics or compute card of NVIDIA.
bool is_nvidia_card(const fs::path& device) {
  std::string vendor;
  std::string kind;
  std::ifstream(device / "vendor") >> vendor;
  std::ifstream(device / "class") >> kind;
  return vendor == "0x10de" && kind.starts_with("0x03");
}

/// Why a card that is there cannot be asked; empty: none is there.
std::string hidden_card() {
  std::error_code failure;
  for (const auto& device : fs::directory_iterator("/sys/bus/pci/devices", failure))
    if (is_nvidia_card(device.path()))
      return "an NVIDIA card is in this machine and no driver answers for it";
  return {};
}

/// Bytes free where `path` is or will be.
int64_t free_bytes(fs::path path) {
  std::error_code failure;
  while (!fs::exists(path, failure) && path.has_relative_path()) path = path.parent_path();
  const auto space = fs::space(path, failure);
  return failure ? 0 : static_cast<int64_t>(space.available);
}

FolderFacts folder_facts(std::string purpose, const fs::path& path, std::string advice) {
  FolderFacts facts{.purpose = std::move(purpose),
                    .path = path.string(),
                    .free_bytes = path.empty() ? 0 : free_bytes(fs::absolute(path)),
                    .advice = std::move(advice)};
  std::error_code failure;
  const bool there = !path.empty() && fs::exists(path, failure);
  if (path.empty() || (there && !fs::is_directory(path, failure)))
    facts.state = FolderFacts::State::unusable;
  else if (!there)
    facts.state = FolderFacts::State::absent;
  else if (::access(path.c_str(), R_OK | X_OK) != 0)
    facts.state = FolderFacts::State::unusable;
  else if (::access(path.c_str(), W_OK) != 0)
    facts.state = FolderFacts::State::read_only;
  else
    facts.state = FolderFacts::State::writable;
  return facts;
}

std::vector<FolderFacts> folders() {
  std::error_code failure;
  const auto variable = [](const char* name) -> const char* { return std::getenv(name); };
  const fs::path own = user_folder("XDG_CACHE_HOME", ".cache");
  return {folder_facts("this folder", fs::current_path(failure), "work in another folder"),
          folder_facts("Hugging Face cache", hub_cache_folder(variable),
                       "name another one with HF_HUB_CACHE"),
          folder_facts("own cache", own, "name another one with XDG_CACHE_HOME or HOME")};
}

/// Why nobody can listen there now; empty: one can. The socket is closed at once.
std::string port_trouble(int32_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return std::strerror(errno);
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool free =
      ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const std::string trouble = free ? "" : std::strerror(errno);
  ::close(socket);
  return trouble;
}

}  // namespace

MachineFacts machine_facts(int32_t port) {
  MachineFacts facts;
  facts.version = NIBBLE_VERSION;
  facts.cuda_code = describe_cuda_code();
  facts.built_with_cuda = !facts.cuda_code.starts_with("none");
  DriverFacts driver = ask_driver();
  facts.driver_version = driver.version;
  facts.driver_cuda = driver.cuda;
  facts.gpus = std::move(driver.gpus);
  facts.gpu_trouble = driver.trouble;
  if (facts.gpus.empty() && facts.gpu_trouble.empty()) facts.gpu_trouble = hidden_card();
  if (const auto device = describe_cuda_device(); !device.ok())
    facts.cuda_trouble = device.error().message;
  facts.cores = usable_cores();
  facts.isa = cpu::usable_kernels().front()->isa;
  facts.memory_bytes = available_memory_bytes();
  facts.folders = folders();
  facts.port = port;
  facts.port_trouble = port_trouble(port);
  return facts;
}

}  // namespace nibble
