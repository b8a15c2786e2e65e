# Runs at install time: NOTICE names each library that the installed folder carries, as a file or
# compiled in, and licences/ has their texts, taken from the Debian packages that the files are of.
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES "${program}" RESOLVED_DEPENDENCIES_VAR carried
     PRE_EXCLUDE_REGEXES ${system_libraries})
file(REMOVE_RECURSE "${work}/licences")
file(MAKE_DIRECTORY "${work}/licences/xgrammar")
find_program(dpkg_query dpkg-query)

set(notice "Nibble is licensed under the Apache License 2.0; see LICENSE. It carries code of these
projects, whose licences are in the folder licences:\n\n")

# The Debian package of `file`, empty where there is none, and the root that it is installed in: empty
# for this system, or the sysroot of a cross build, which has books of its own.
function(package_of file out root)
  set(${out} "" PARENT_SCOPE)
  set(${root} "" PARENT_SCOPE)
  set(books "")
  if(NOT dpkg_query)
    return()
  endif()
  file(REAL_PATH "${file}" real)
  string(FIND "${real}" "${sysroot}/" at)
  if(sysroot AND at EQUAL 0)
    set(${root} "${sysroot}" PARENT_SCOPE)
    set(books "--admindir=${sysroot}/var/lib/dpkg")
    string(REPLACE "${sysroot}/" "/" real "${real}")
    string(REPLACE "${sysroot}/" "/" file "${file}")
  endif()
  foreach(path "${real}" "${file}")
    # Debian 12 has some files under /lib that dpkg knows without /usr, and the other way round.
    string(REGEX REPLACE "^/usr/lib/" "/lib/" short "${path}")
    foreach(name "${path}" "${short}")
      execute_process(COMMAND ${dpkg_query} ${books} -S "${name}" OUTPUT_VARIABLE owner ERROR_QUIET
                      RESULT_VARIABLE code)
      if(code EQUAL 0)
        string(REGEX REPLACE ":.*" "" owner "${owner}")
        set(${out} "${owner}" PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endforeach()
endfunction()

set(packages "")
foreach(file ${carried} ${compiled_in})
  package_of("${file}" package root)
  if(package STREQUAL "" OR NOT EXISTS "${root}/usr/share/doc/${package}/copyright")
    message(FATAL_ERROR "no licence found for ${file}: it belongs to no Debian package with a "
                        "copyright file. Build on Debian or a system of its kind.")
  endif()
  list(APPEND packages "${package}")
  set(root_of_${package} "${root}")
endforeach()
list(REMOVE_DUPLICATES packages)
list(SORT packages)
foreach(package ${packages})
  set(root "${root_of_${package}}")
  execute_process(COMMAND ${dpkg_query} "--admindir=${root}/var/lib/dpkg" -W
                          "-f=\${source:Package} \${source:Version}" ${package}
                  OUTPUT_VARIABLE source)
  string(APPEND notice "  ${package}, of Debian's source ${source}: licences/${package}\n")
  file(COPY_FILE "${root}/usr/share/doc/${package}/copyright" "${work}/licences/${package}")
endforeach()
file(COPY "${xgrammar}/LICENSE" "${xgrammar}/NOTICE" DESTINATION "${work}/licences/xgrammar")
file(COPY_FILE "${xgrammar}/3rdparty/dlpack/LICENSE" "${work}/licences/xgrammar/dlpack.txt")
file(READ "${xgrammar}/3rdparty/picojson/picojson.h" header)
string(FIND "${header}" "*/" end)  # its licence is its first comment
string(SUBSTRING "${header}" 0 ${end} header)
file(WRITE "${work}/licences/xgrammar/picojson.txt" "${header}*/\n")
get_filename_component(name "${xgrammar}" NAME)
string(APPEND notice "  ${name}, with picojson and dlpack: licences/xgrammar\n")
if(cutlass)
  file(GLOB text "${cutlass}/*.dist-info/licenses/LICENSE.txt")
  file(COPY_FILE "${text}" "${work}/licences/cutlass.txt")
  get_filename_component(name "${cutlass}" NAME)
  string(APPEND notice "  ${name}, whose headers are compiled in: licences/cutlass.txt\n")
endif()
if(cuda)
  string(APPEND notice "  the CUDA runtime of NVIDIA, linked statically under the CUDA Toolkit's EULA:
    https://docs.nvidia.com/cuda/eula\n")
endif()
file(WRITE "${work}/NOTICE" "${notice}")
file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/share/doc/nibble" TYPE FILE FILES "${work}/NOTICE")
file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/share/doc/nibble" TYPE DIRECTORY
     FILES "${work}/licences")
