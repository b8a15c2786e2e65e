# Writes OUTPUT, a C++ file with the text of every file *.EXTENSION in FOLDER as FUNCTION(), a span
# of TYPE, so that the program carries them wherever it is installed. Run as a build step, again
# whenever one of them changes.
file(GLOB files ${FOLDER}/*.${EXTENSION})
list(SORT files)
set(rows "")
foreach(file ${files})
  get_filename_component(name ${file} NAME_WLE)
  file(READ ${file} text)
  string(APPEND rows "    {\"${name}\", R\"text(${text})text\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Text files, compiled in; written by embed_texts.cmake.
#include \"${HEADER}\"

namespace nibble {
std::span<const ${TYPE}> ${FUNCTION}() {
  static constexpr ${TYPE} kFiles[] = {
${rows}  };
  return kFiles;
}
}  // namespace nibble
")
