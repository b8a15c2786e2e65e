# Writes OUTPUT, a C++ file with the bytes of the page's files (FILES, separated by commas) and their
# hashes as nibble::embedded_files(), so that the program carries them wherever it is installed.
string(REPLACE "," ";" files "${FILES}")
set(rows "")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME)
  file(READ "${file}" text)
  file(SHA256 "${file}" hash)
  string(SUBSTRING "${hash}" 0 16 hash)
  string(APPEND rows "    {\"${name}\", \"\\\"${hash}\\\"\", R\"web~(${text})web~\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "// The files of src/server/web, compiled in; written by embed.cmake.
#include \"server/web/web_assets.h\"

namespace nibble {
std::span<const EmbeddedFile> embedded_files() {
  static constexpr EmbeddedFile kFiles[] = {
${rows}  };
  return kFiles;
}
}  // namespace nibble
")
