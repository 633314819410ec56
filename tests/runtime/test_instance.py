from toolbox import PAGE, get, sh


def test_launched(instance):
    assert get(instance) == (200, PAGE)
    assert sh(instance, "id -u").strip() == "0"
