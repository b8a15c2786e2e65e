# Writes OUTPUT, a C++ file with the text of every YAML file in FOLDER as FUNCTION(), a span of TYPE,
# so that the program carries them wherever it is installed. Run as a build step, again whenever one
# of them changes.
file(GLOB files ${FOLDER}/*.yaml)
list(SORT files)
set(rows "")
foreach(file ${files})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(APPEND rows "    {\"${name}\", R\"recipe(${text})recipe\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Text files, compiled in; written by embed_recipes.cmake.
#include \"${HEADER}\"

namespace nibble {
std::span<const ${TYPE}> ${FUNCTION}() {
  static constexpr ${TYPE} kFiles[] = {
${rows}  };
  return kFiles;
}
}  // namespace nibble
")
