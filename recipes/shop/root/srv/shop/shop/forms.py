"""What customers fill in."""

from django import forms
from django.contrib.auth.forms import UserCreationForm
from django.contrib.auth.models import User

from shop.models import Order, Review
from shop.pictures import PHOTO_TYPES


class AddToCartForm(forms.Form):
    """How many of a product to put in the cart."""

    quantity = forms.IntegerField(min_value=1, max_value=99, initial=1)


class CartLineForm(forms.Form):
    """How many of a product to keep in the cart."""

    quantity = forms.IntegerField(min_value=0, max_value=99)


class CheckoutForm(forms.ModelForm):
    """Where an order goes and how it is paid."""

    class Meta:
        model = Order
        fields = ["full_name", "email", "street", "postcode", "city", "country", "payment"]
        widgets = {
            "full_name": forms.TextInput({"autocomplete": "name"}),
            "email": forms.EmailInput({"autocomplete": "email"}),
            "street": forms.TextInput({"autocomplete": "street-address"}),
            "postcode": forms.TextInput({"autocomplete": "postal-code"}),
            "city": forms.TextInput({"autocomplete": "address-level2"}),
            "country": forms.TextInput({"autocomplete": "country-name"}),
        }


class RegistrationForm(UserCreationForm):
    """A new account."""

    email = forms.EmailField()

    class Meta(UserCreationForm.Meta):
        model = User
        fields = ["username", "first_name", "last_name", "email"]


class ReviewForm(forms.ModelForm):
    """A review, with a picture if the customer has one."""

    rating = forms.TypedChoiceField(
        coerce=int, choices=[(n, "★" * n + "☆" * (5 - n)) for n in range(5, 0, -1)]
    )
    picture = forms.FileField(required=False, widget=forms.FileInput({"accept": ",".join(PHOTO_TYPES)}))

    class Meta:
        model = Review
        fields = ["rating", "title", "text", "picture"]
        widgets = {"text": forms.Textarea({"rows": 4})}
