# Run at build time: cmake -DINPUT=file -DOUTPUT=file.c -DNAME=symbol -P embed_text.cmake writes `const char symbol[]` with the file's bytes and
# a closing NUL. A byte array rather than a string literal: nothing needs quoting, and no compiler limits its length.
file(READ "${INPUT}" bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(0x[0-9a-f][0-9a-f],0x[0-9a-f][0-9a-f],0x[0-9a-f][0-9a-f],0x[0-9a-f][0-9a-f],)" "\\1\n" bytes "${bytes}")
file(WRITE "${OUTPUT}" "extern const char ${NAME}[];\nconst char ${NAME}[] = {\n${bytes}0};\n")
