from crt.levels.build import stored_model


def test_a_converted_gguf_file_is_named_by_its_folder(tmp_path):
    file, converted = tmp_path / "run" / "family.json", tmp_path / "cache" / "small-1a2b"
    assert stored_model("models/small.gguf", converted, file) == ("../cache/small-1a2b", True)


def test_a_folder_is_relative_and_a_hub_id_stays_as_it_is(tmp_path):
    file, base = tmp_path / "run" / "family.json", tmp_path / "base"
    base.mkdir()
    assert stored_model(str(base), base, file) == ("../base", True)
    assert stored_model("owner/name", tmp_path / "hub", file) == ("owner/name", False)
    assert stored_model("pocket", tmp_path / "assets", file) == ("pocket", False)
