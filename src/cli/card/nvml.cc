// Names and types of NVIDIA's nvml.h; its application interface has kept them since version 2.
#include "cli/card/nvml.h"

#include <dlfcn.h>

#include <memory>

namespace nibble {
namespace {

using Device = void*;
struct Memory {
  unsigned long long total, free, used;  // NOLINT(google-runtime-int): as the library declares it
};
constexpr int kSuccess = 0;
constexpr unsigned kTextMax = 96;

/// One function of the library, or nullptr.
template <typename Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

struct Library {
  explicit Library(void* handle)
      : init(find<int()>(handle, "nvmlInit_v2")),
        shutdown(find<int()>(handle, "nvmlShutdown")),
        driver_version(find<int(char*, unsigned)>(handle, "nvmlSystemGetDriverVersion")),
        cuda_version(find<int(int*)>(handle, "nvmlSystemGetCudaDriverVersion_v2")),
        count(find<int(unsigned*)>(handle, "nvmlDeviceGetCount_v2")),
        at(find<int(unsigned, Device*)>(handle, "nvmlDeviceGetHandleByIndex_v2")),
        name(find<int(Device, char*, unsigned)>(handle, "nvmlDeviceGetName")),
        capability(find<int(Device, int*, int*)>(handle, "nvmlDeviceGetCudaComputeCapability")),
        memory(find<int(Device, Memory*)>(handle, "nvmlDeviceGetMemoryInfo")) {}
  bool whole() const {
    return init && shutdown && driver_version && cuda_version && count && at && name &&
           capability && memory;
  }

  int (*init)();
  int (*shutdown)();
  int (*driver_version)(char*, unsigned);
  int (*cuda_version)(int*);
  int (*count)(unsigned*);
  int (*at)(unsigned, Device*);
  int (*name)(Device, char*, unsigned);
  int (*capability)(Device, int*, int*);
  int (*memory)(Device, Memory*);
};

/// A card of unified memory has no memory of its own to tell of: its bytes stay 0.
GpuFacts gpu_facts(const Library& library, Device device) {
  GpuFacts facts;
  char name[kTextMax] = {};
  if (library.name(device, name, kTextMax) == kSuccess) facts.name = name;
  int major = 0;
  int minor = 0;
  if (library.capability(device, &major, &minor) == kSuccess) facts.capability = major * 10 + minor;
  Memory memory = {};
  if (library.memory(device, &memory) == kSuccess) {
    facts.memory_bytes = static_cast<int64_t>(memory.total);
    facts.free_bytes = static_cast<int64_t>(memory.free);
  }
  return facts;
}

void ask(const Library& library, DriverFacts& facts) {
  char version[kTextMax] = {};
  if (library.driver_version(version, kTextMax) == kSuccess) facts.version = version;
  if (library.cuda_version(&facts.cuda) != kSuccess) facts.cuda = 0;
  unsigned count = 0;
  if (library.count(&count) != kSuccess) {
    facts.trouble = "the driver does not list its cards";
    return;
  }
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (library.at(i, &device) == kSuccess)
      facts.gpus.push_back(gpu_facts(library, device));
    else
      facts.trouble = concat("the driver does not answer for card ", i);
  }
}

}  // namespace

DriverFacts ask_driver() {
  DriverFacts facts;
  const auto close = [](void* handle) { dlclose(handle); };
  const std::unique_ptr<void, decltype(close)> handle(dlopen("libnvidia-ml.so.1", RTLD_NOW), close);
  if (handle == nullptr) return facts;
  const Library library(handle.get());
  if (!library.whole()) {
    facts.trouble = "libnvidia-ml.so.1 lacks functions of version 2; the driver is too old";
    return facts;
  }
  if (const int status = library.init(); status != kSuccess) {
    facts.trouble = concat("the driver's management library does not start (status ", status,
                           "): is the kernel module loaded, and of the same version?");
    return facts;
  }
  ask(library, facts);
  library.shutdown();
  return facts;
}

}  // namespace nibble
