// One function for each subject, in the order of the lines.
#include "plan/machine_report.h"

#include "plan/text_table.h"

namespace nibble {
namespace {

using Lines = std::vector<HealthLine>;
constexpr int32_t kOldestCapability = 80;

std::string gigabytes(int64_t bytes) {
  return concat(fixed_text(static_cast<double>(bytes) / 1e9, 1), " GB");
}

std::string cuda_text(int32_t version) {
  return concat("CUDA ", version / 1000, ".", version % 1000 / 10);
}

void add_program(const MachineFacts& facts, Lines& lines) {
  lines.push_back({"program", Health::fine,
                   concat("nibble ", facts.version, ", CUDA code: ", facts.cuda_code), ""});
}

/// The first card that may be used; nullptr: none.
const GpuFacts* usable_gpu(const MachineFacts& facts) {
  if (facts.gpus.empty() || facts.gpus.front().capability < kOldestCapability) return nullptr;
  return &facts.gpus.front();
}

void add_gpus(const MachineFacts& facts, Lines& lines) {
  if (facts.gpus.empty()) {
    const bool hidden = !facts.gpu_trouble.empty();
    lines.push_back({"GPU", hidden ? Health::not_fine : Health::note,
                     hidden ? facts.gpu_trouble
                            : "no NVIDIA card is here; the CPU backend runs every model instead",
                     hidden ? "install NVIDIA's driver (nvidia-smi must list the card); until "
                              "then the CPU backend runs instead"
                            : ""});
    return;
  }
  for (size_t i = 0; i < facts.gpus.size(); ++i) {
    const GpuFacts& gpu = facts.gpus[i];
    HealthLine line{"GPU", Health::fine,
                    concat(gpu.name, ", compute capability ", capability_text(gpu.capability), ", ",
                           gpu.memory_bytes >> 20, " MiB, ", gpu.free_bytes >> 20, " free"),
                    ""};
    if (gpu.capability < kOldestCapability) {
      line.health = Health::not_fine;
      line.advice =
          "compute capability 8.0 or higher is needed, whose tensor cores multiply BF16; "
          "--backend cpu runs on the CPU";
    } else if (i > 0) {
      line.health = Health::note;
      line.advice = "one card is used: the first that CUDA_VISIBLE_DEVICES names";
    }
    lines.push_back(std::move(line));
  }
}

void add_driver(const MachineFacts& facts, Lines& lines) {
  if (facts.driver_version.empty()) {
    if (!facts.gpus.empty())
      lines.push_back({"driver", Health::not_fine, "none answers", "install NVIDIA's driver"});
    return;
  }
  lines.push_back(
      {"driver", Health::fine,
       concat(facts.driver_version, ", for ", cuda_text(facts.driver_cuda), " and older programs"),
       ""});
}

void add_code(const MachineFacts& facts, Lines& lines) {
  if (usable_gpu(facts) == nullptr) return;
  if (!facts.built_with_cuda) {
    lines.push_back({"CUDA code", Health::not_fine,
                     "none in this binary: the CPU backend runs instead",
                     "build it with cmake --preset native where nvcc 13.0 or newer is installed"});
  } else if (!facts.cuda_trouble.empty()) {
    lines.push_back({"CUDA code", Health::not_fine, facts.cuda_trouble, ""});
  } else {
    lines.push_back({"CUDA code", Health::fine, "this binary runs on the first card", ""});
  }
}

void add_formats(const MachineFacts& facts, Lines& lines) {
  const GpuFacts* gpu = usable_gpu(facts);
  if (gpu == nullptr) return;
  constexpr int32_t kFirstFp4 = 100;
  constexpr int32_t kFirstWarpFp4 = 120;  // whose instruction for 4-bit codes this program has
  std::string text = concat("multiplies ", native_formats(gpu->capability), "; NVFP4 weights ");
  if (gpu->capability < kFirstFp4)
    text += "run weight-only: 4 bits in memory, widened to BF16 for products";
  else if (gpu->capability < kFirstWarpFp4)
    text += "are widened to BF16 for products: this build does not use the card's FP4 products";
  else
    text +=
        "are multiplied as 4-bit codes where the checkpoint declares 4-bit activations and the "
        "comparison at the first start finds no difference (--receipt shows more), else widened "
        "to BF16";
  constexpr int32_t kTuned = 90;
  const bool tuned = gpu->capability == kTuned;
  if (!tuned) text += "; the portable kernels run, which were not tuned or measured on this card";
  lines.push_back({"formats", tuned ? Health::fine : Health::note, std::move(text), ""});
}

void add_expectations(const MachineFacts& facts, Lines& lines) {
  for (const Expectation& model : facts.expectations) {
    if (!model.longest_request) {
      lines.push_back({"model", Health::note,
                       concat(model.model, " in ", model.recipe,
                              " does not fit: ", gigabytes(model.weight_bytes), " of weights"),
                       concat("see nibble plan ", model.model)});
      continue;
    }
    std::string text =
        concat(model.model, " in ", model.recipe, ": fits, ", gigabytes(model.weight_bytes),
               " of weights, requests of up to ", *model.longest_request, " tokens");
    if (model.tokens_per_second > 0)
      text += concat("; at most ", fixed_text(model.tokens_per_second, 0),
                     " tokens/s for one stream (computed from bytes and bandwidth)");
    lines.push_back({"model", Health::fine, std::move(text), ""});
  }
}

void add_cpu(const MachineFacts& facts, Lines& lines) {
  const bool slow = facts.isa == "scalar";
  lines.push_back(
      {"CPU", slow ? Health::note : Health::fine,
       concat(facts.cores, facts.cores == 1 ? " core" : " cores", " usable, kernels: ", facts.isa),
       slow ? "AVX2 with FMA and F16C makes the CPU backend several times as fast" : ""});
}

void add_memory(const MachineFacts& facts, Lines& lines) {
  constexpr int64_t kLeast = int64_t{1} << 30;
  const bool little = facts.memory_bytes < kLeast;
  lines.push_back({"memory", little ? Health::not_fine : Health::fine,
                   concat(gigabytes(facts.memory_bytes), " available to this process"),
                   little ? "at least 1.1 GB is needed to quantize or serve; end other programs or "
                            "raise the container's limit"
                          : ""});
}

void add_folder(const FolderFacts& folder, Lines& lines) {
  constexpr int64_t kLeastFree = int64_t{1} << 30;
  HealthLine line{folder.purpose, Health::fine,
                  concat(folder.path, ", ", gigabytes(folder.free_bytes), " free"), ""};
  switch (folder.state) {
    case FolderFacts::State::writable:
      if (folder.free_bytes >= kLeastFree) break;
      line.health = Health::not_fine;
      line.advice = concat("free some space, or ", folder.advice);
      break;
    case FolderFacts::State::read_only:
      line.health = Health::note;
      line.text += ", not writable";
      line.advice = concat("models in it are read; to write, ", folder.advice);
      break;
    case FolderFacts::State::absent:
      line.health = Health::note;
      line.text = concat(folder.path, ", not there yet");
      line.advice = "it is made when something is kept in it";
      break;
    case FolderFacts::State::unusable:
      line.health = Health::not_fine;
      line.text = folder.path.empty() ? "no folder is known"
                                      : concat(folder.path, " is no folder, or cannot be read");
      line.advice = folder.advice;
      break;
  }
  lines.push_back(std::move(line));
}

void add_port(const MachineFacts& facts, Lines& lines) {
  const bool fine = facts.port_trouble.empty();
  lines.push_back(
      {"port", fine ? Health::fine : Health::note,
       concat("127.0.0.1:", facts.port, fine ? " is free" : concat(": ", facts.port_trouble)),
       fine ? "" : "another server may run there; choose one with serve --port"});
}

}  // namespace

std::vector<HealthLine> machine_report(const MachineFacts& facts) {
  Lines lines;
  add_program(facts, lines);
  add_gpus(facts, lines);
  add_driver(facts, lines);
  add_code(facts, lines);
  add_formats(facts, lines);
  add_expectations(facts, lines);
  add_cpu(facts, lines);
  add_memory(facts, lines);
  for (const FolderFacts& folder : facts.folders) add_folder(folder, lines);
  add_port(facts, lines);
  return lines;
}

}  // namespace nibble
