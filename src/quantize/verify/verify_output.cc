// The one file that makes a folder a checkpoint is taken away.
#include "quantize/verify/verify_output.h"

#include "base/file.h"

namespace nibble {

Result<VerifyReport> verify_output(const std::filesystem::path& folder,
                                   const VerifyOptions& options, const VerifyFunction& verify) {
  auto report = verify(folder, options);
  if (report.ok() && report.value().sound()) return report;
  std::error_code failure;
  std::filesystem::remove(folder / "config.json", failure);
  if (failure)
    return make_error(ErrorCode::io,
                      {.what = concat("cannot remove ", (folder / "config.json").string()),
                       .found = failure.message(),
                       .advice = "remove the folder: what is in it is not sound"});
  TRY(sync_folder(folder));
  return report;
}

}  // namespace nibble
